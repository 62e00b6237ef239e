"""Operations without a builder, written out in others: torch's own decompositions of them."""

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.builders import known
from bslite.frontends.torch.graph import Graph, is_getitem, writes
from bslite.frontends.torch.memory import LIES
from bslite.frontends.torch.written import holding, write_values

if TYPE_CHECKING:
    import torch
    from torch.fx import Node

#: Operations that end in library routines of torch's however they are written out.
WHOLE = re.compile(
    r"aten::(fft_|stft|istft|linalg_(?!vecdot|cross|norm|matrix_norm|vander)|(log|slog)?det$|_)"
)


@cache
def table() -> "dict[torch._ops.OperatorBase, Callable[..., Any]]":
    """Every operation of aten that has no builder and that torch can write out -> how."""
    torch = load_torch()
    found: dict[Any, Callable[..., Any]] = dict(torch.export.default_decompositions().items())
    return {op: how for op, how in found.items() if _is_to_go(op)}


def _is_to_go(op: Any) -> bool:
    schema = getattr(op, "_schema", None)
    if schema is None or not schema.name.startswith("aten::") or schema.is_mutable:
        return False
    seeded = load_torch().Tag.nondeterministic_seeded in op.tags  # a random number is to stay the same one
    return not (seeded or WHOLE.match(schema.name) or known(op))


def written_out(program: Any) -> Any:
    """``program``, a ``torch.export.ExportedProgram`` without operations in place, with each operation of
    `table` that computes an activation written out where it stands; None if one cannot be. torch traces the
    whole program again to do so, which takes several times as long as the first trace.
    """
    torch = load_torch()
    facts, graph, new = Graph(program), torch.fx.Graph(), dict["Node", Any]()
    computing = {n for n in facts.operations() if n not in facts.whole and n.target in table()}
    for node in facts.nodes:
        if node in computing:
            try:
                new[node] = _in_others(graph, node, new)
            except Exception:  # a decomposition does not hold for free sizes: torch may know another way
                return None
        elif is_getitem(node) and isinstance(parts := new[node.args[0]], (list, tuple)):  # type: ignore[index]
            new[node] = parts[node.args[1]]  # type: ignore[index]
        else:
            made = new[node] = graph.node_copy(node, new.__getitem__)
            made.name = node.name  # which a new graph would not give to an input called "input"
    graph.lint()
    return holding(program, graph)


def _in_others(graph: Any, node: "Node", new: "dict[Node, Any]") -> Any:
    """The nodes for the results of ``node``, in the layer of which they are told to be."""
    torch = load_torch()
    tree = torch.utils._pytree
    leaves, form = tree.tree_flatten((node.args, node.kwargs))
    sources = list(dict.fromkeys(n for n in leaves if isinstance(n, torch.fx.Node)))

    def called(*values: Any) -> Any:
        given = dict(zip(sources, values, strict=True))
        args, kwargs = tree.tree_unflatten(
            [given[n] if isinstance(n, torch.fx.Node) else n for n in leaves], form
        )
        return node.target(*args, **kwargs)  # type: ignore[operator]

    with torch._guards.detect_fake_mode([n.meta["val"] for n in sources]), torch.no_grad():
        trace = torch.fx.experimental.proxy_tensor.make_fx(called, table())
        written = trace(*(n.meta["val"] for n in sources)).graph
    write_values(written, node.name)
    given = iter(sources)
    at: dict[Node, Any] = {}
    for inner in written.nodes:
        if inner.op == "placeholder":
            at[inner] = new[next(given)]
        elif inner.op == "output":
            return torch.fx.map_arg(inner.args[0], at.__getitem__)
        elif inner.op == "call_function" and not writes(inner):
            made = at[inner] = graph.node_copy(inner, at.__getitem__)
            made.name = f"{node.name}_by_{inner.name}"
            made.meta = {**node.meta, "val": inner.meta["val"]}
            made.meta.pop(LIES, None)
        else:
            raise TypeError(inner.op)  # a tensor that it makes itself, or a write to what it is given
    raise AssertionError("a graph ends with its output")
