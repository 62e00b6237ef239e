"""Operations of training mode, rewritten so that what bslite computes stands apart from what torch must do.

A batch norm gives its result and the batch's statistics; noting these in the running ones is an operation of
torch's. A dropout is a product with noise, which torch's generator makes.
"""

import math
import operator
from functools import cache
from typing import TYPE_CHECKING, Any

from bslite.errors import UnsupportedError
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.graph import writes

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

_kept: list[Any] = []  # libraries, which undefine their operations when they go


@cache
def operations() -> Any:
    """``torch.ops.bslite`` with the operations of this module: defined on first use."""
    torch = load_torch()
    library = torch.library.Library("bslite", "FRAGMENT")
    seeded = (torch.Tag.nondeterministic_seeded,)
    given = (
        (
            "batch_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor)",
            _batch_norm,
            (),
        ),
        (
            "note_batch_(Tensor(a!) mean, Tensor(b!) var, Tensor stats, float momentum, int count) -> ()",
            _note,
            (),
        ),
        ("advance_(Tensor(a!) number, Scalar by) -> ()", _advance, ()),
        ("noise(int[] size, int[] stride, float p) -> Tensor", _noise, seeded),
    )
    for schema, run, tags in given:
        library.define(schema, tags=tags)
        library.impl(schema.partition("(")[0], run, "CompositeImplicitAutograd")
    _kept.append(library)
    return torch.ops.bslite


def _batch_norm(x: "Tensor", weight: "Tensor | None", bias: "Tensor | None", eps: float) -> Any:
    """torch's own, and means and variances ``[2, C]``, which divide by n."""
    torch = load_torch()
    made = torch.nn.functional.batch_norm(x, None, None, weight, bias, True, 0.0, eps)
    with torch.no_grad():
        axes = [0, *range(2, x.ndim)]
        return made, torch.stack([x.mean(axes), x.var(axes, correction=0)])


def _note(mean: "Tensor", var: "Tensor", stats: "Tensor", momentum: float, count: int) -> None:
    """Running statistics as torch's batch norm keeps them: its variance divides by n - 1."""
    with load_torch().no_grad():
        mean.lerp_(stats[0], momentum)
        var.lerp_(stats[1] * (count / max(count - 1, 1)), momentum)


def _advance(number: "Tensor", by: float) -> None:
    with load_torch().no_grad():
        number.add_(by)


def _noise(size: list[int], stride: list[int], p: float) -> "Tensor":
    """What torch's dropout multiplies by, drawn as it draws: zero with probability ``p``."""
    torch = load_torch()
    made = torch.empty_strided(size, stride)
    return made.zero_() if p == 1 else made.bernoulli_(1 - p).div_(1 - p)


def rewrite(program: Any, name: str) -> "set[Node]":
    """Rewrite batch norms and dropouts of an exported program in training mode; the nodes that act on the
    module's buffers.

    Raises UnsupportedError if something else changes a tensor of the module.
    """
    ops, graph = operations(), program.graph
    aten = load_torch().ops.aten
    stored = {n for n in graph.nodes if n.op == "placeholder"}
    effects: set[Node] = set()
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target is aten.batch_norm.default and node.args[5]:
            effects |= _rewrite_batch_norm(graph, node, ops, name)
        elif node.target is aten.dropout.default and node.args[2] and node.args[1]:
            _rewrite_dropout(graph, node, ops)
        elif node.target is aten.add_.Tensor and node.args[0] in stored and not node.users:
            with graph.inserting_before(node):
                effects.add(graph.call_function(ops.advance_.default, tuple(node.args)))
            graph.erase_node(node)
        elif writes(node) and any(a in stored for a in node.all_input_nodes[:1]):
            raise UnsupportedError(
                f"model {name!r}: its forward changes {node.all_input_nodes[0].name!r} in place"
            )
    graph.lint()
    return effects


def _rewrite_batch_norm(graph: Any, node: "Node", ops: Any, name: str) -> "set[Node]":
    x, weight, bias, mean, var, _, momentum, eps, *_ = node.args
    value: Any = x.meta["val"]  # type: ignore[union-attr]
    if not all(isinstance(d, int) for d in value.shape):
        raise UnsupportedError(f"model {name!r}: a batch norm in training needs known sizes")
    with graph.inserting_before(node):
        both = graph.call_function(ops.batch_norm.default, (x, weight, bias, eps))
        parts = [graph.call_function(operator.getitem, (both, i)) for i in range(2)]
        effects = set()
        if mean is not None:
            count = math.prod(value.shape) // value.shape[1]
            effects = {graph.call_function(ops.note_batch_.default, (mean, var, parts[1], momentum, count))}
    made = node.meta["val"], value.new_empty((2, value.shape[1]))
    for new, meta in zip((both, *parts), (made, *made), strict=True):
        new.meta = {**node.meta, "val": meta}
    node.replace_all_uses_with(parts[0])
    graph.erase_node(node)
    return effects


def _rewrite_dropout(graph: Any, node: "Node", ops: Any) -> None:
    x, p, _ = node.args
    value: Any = node.meta["val"]
    with graph.inserting_before(node):
        noise = graph.call_function(ops.noise.default, (list(value.shape), list(value.stride()), p))
        made = graph.call_function(load_torch().ops.aten.mul.Tensor, (x, noise))
    for new in (noise, made):
        new.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
