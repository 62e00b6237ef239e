"""An exported graph with some of its free sizes fixed: what is computed from them becomes numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.sizes import claims
from bslite.frontends.torch.values import substituted

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Program:
    """An exported program as far as a walk over its graph needs it."""

    graph: "torch.fx.Graph"
    root: "torch.fx.GraphModule"
    graph_signature: Any
    state_dict: Mapping[str, Any]
    constants: Mapping[str, Any]
    call_spec: Any
    claims: Sequence[Any]  # what `claims` finds

    @cached_property
    def graph_module(self) -> "torch.fx.GraphModule":
        """The graph as something to run."""
        return load_torch().fx.GraphModule(self.root, self.graph)


def fixed(program: Any, sizes: Mapping[Any, int]) -> Program:
    """``program`` with numbers for the symbols of ``sizes``, without its assertions on sizes."""
    torch = load_torch()
    graph, new, known = torch.fx.Graph(), {}, _Known(sizes)
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            number = _number(value, known)
            if number is not None:
                new[node] = number
                continue
        elif node.op == "call_function" and value is None and not node.users:
            continue  # an assertion on sizes
        made = graph.node_copy(node, new.__getitem__)
        made.name = node.name  # which a new graph would not give to an input called "input"
        if value is None or isinstance(value, torch.Tensor):
            made.meta["val"] = _fixed(value, known)
        else:
            made.meta["val"] = torch.utils._pytree.tree_map(lambda x: _fixed(x, known), value)
        new[node] = made
    return Program(
        graph,
        program.graph_module,
        program.graph_signature,
        program.state_dict,
        program.constants,
        program.call_spec,
        [e for e in (substituted(c, sizes) for c in claims(program)) if getattr(e, "free_symbols", ())],
    )


class _Known(dict[Any, Any]):
    """Expression -> what it is with the sizes fixed. ``tensors``: those made, by shape, strides and dtype."""

    def __init__(self, sizes: Mapping[Any, int]) -> None:
        self._sizes = sizes
        self.tensors: dict[Any, Any] = {}

    def __missing__(self, expression: Any) -> Any:
        made = self[expression] = substituted(expression, self._sizes)
        return made


def _number(size: Any, known: _Known) -> Any:
    """The number that a symbolic one has become, or None."""
    made = known[size.node.expr]
    if made.free_symbols:
        return None
    torch = load_torch()
    if isinstance(size, torch.SymBool):
        return bool(made)
    return int(made) if isinstance(size, torch.SymInt) else float(made)


def _fixed(value: Any, known: _Known) -> Any:
    """A traced tensor with the sizes fixed; tensors that are alike become one."""
    torch = load_torch()
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return value
    shape, stride = list(value.shape), list(value.stride())
    if all(isinstance(n, int) for n in (*shape, *stride)):
        return value
    sizes = [n if isinstance(n, int) else known[n.node.expr] for n in (*shape, *stride)]
    key = (*sizes, value.dtype, value.device)
    if (made := known.tensors.get(key)) is None:
        shape, stride = ([_size(n, known) for n in given] for given in (shape, stride))
        if all(isinstance(n, int) for n in (*shape, *stride)):
            made = torch.empty_strided(shape, stride, dtype=value.dtype, device="meta")
        else:
            with value.fake_mode:
                made = torch.empty_strided(shape, stride, dtype=value.dtype, device=value.device)
        known.tensors[key] = made
    return made


def _size(size: Any, known: _Known) -> Any:
    if isinstance(size, int):
        return size
    made = known[size.node.expr]
    if not made.free_symbols:
        return int(made)
    return size if made == size.node.expr else size.node.shape_env.create_symintnode(made, hint=None)
