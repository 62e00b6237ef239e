"""Operations of training mode, rewritten so that what bslite computes stands apart from what torch must do.

A batch norm gives its result and the batch's statistics; noting these in the running ones is an operation of
torch's, as is keeping what else a forward writes to a buffer (`bslite.frontends.torch.states`). A dropout is
a product with noise (`bslite.frontends.torch.noise`). The row of a table that pads, which gets no gradient,
is put into an embedding's result as a constant.
"""

import math
import operator
from functools import cache
from typing import TYPE_CHECKING, Any

from bslite.errors import UnsupportedError
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.graph import Graph, targets
from bslite.frontends.torch.modes import write_out
from bslite.frontends.torch.noise import draw
from bslite.frontends.torch.put import put
from bslite.frontends.torch.states import keep_states, only_counts

if TYPE_CHECKING:
    from torch import Tensor
    from torch.fx import Node

CUMULATIVE = -1.0  # the momentum of a batch norm whose running statistics are means over all batches
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
            note,
            (),
        ),
        (
            "average_batch_(Tensor(a!) mean, Tensor(b!) var, Tensor stats, Tensor number, int count) -> ()",
            _average,
            (),
        ),
        (
            "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor noise, bool is_causal, "
            "float? scale, bool grouped) -> Tensor",
            _attention,
            (),
        ),
        ("advance_(Tensor(a!) number, Scalar by) -> ()", _advance, ()),
        ("keep_(Tensor(a!) state, Tensor value) -> ()", _keep, ()),
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
    made, mean, scale = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, eps)
    with torch.no_grad():
        return made, torch.stack([mean, scale.pow(-2) - eps])


def _attention(
    q: "Tensor",
    k: "Tensor",
    v: "Tensor",
    mask: "Tensor | None",
    noise: "Tensor",
    is_causal: bool,
    scale: float | None,
    grouped: bool,
) -> "Tensor":
    """torch's own, its weights multiplied by noise."""
    how = {"scale": scale, "enable_gqa": grouped}
    math = load_torch().ops.aten._scaled_dot_product_attention_math
    weights: Tensor = math(q, k, v, mask, 0.0, is_causal, **how)[1]
    if grouped:
        v = v.repeat_interleave(q.shape[-3] // v.shape[-3], -3)
    return weights * noise @ v


def note(mean: "Tensor", var: "Tensor", stats: "Tensor", momentum: float, count: int) -> None:
    """Running statistics as torch's batch norm keeps them: its variance divides by n - 1."""
    with load_torch().no_grad():
        mean.lerp_(stats[0], momentum)
        var.lerp_(stats[1] * (count / max(count - 1, 1)), momentum)


def _average(mean: "Tensor", var: "Tensor", stats: "Tensor", number: "Tensor", count: int) -> None:
    """Running statistics that are means over ``number`` batches, of which this is the last."""
    note(mean, var, stats, 1.0 / float(number), count)


def _advance(number: "Tensor", by: float) -> None:
    with load_torch().no_grad():
        number.add_(by)


def _keep(state: "Tensor", value: "Tensor") -> None:
    with load_torch().no_grad():
        state.copy_(value)


def _noise(size: list[int], stride: list[int], p: float) -> "Tensor":
    """What torch's dropout multiplies by, drawn as it draws: zero with probability ``p``."""
    torch = load_torch()
    made = torch.empty_strided(size, stride)
    return made.zero_() if p == 1 else made.bernoulli_(1 - p).div_(1 - p)


def rewrite(program: Any, name: str) -> "set[Node]":
    """Rewrite an exported program in training mode, traced with gradients; the nodes that act on the module's
    buffers.

    Raises UnsupportedError if something else changes a tensor of the module, or an operation in place does
    more than its twin that is not.
    """
    ops, aten, graph = operations(), load_torch().ops.aten, program.graph
    without = write_out(program, name)
    effects = keep_states(program, name, without, ops.keep_.default)
    paths = {s.arg.name: s.target for s in program.graph_signature.input_specs}
    stored = {paths[n.name]: n for n in graph.nodes if n.op == "placeholder"}
    for node in list(graph.nodes):
        changed = [] if node in effects else [x for x in targets(node) if x in stored.values()]
        if changed and only_counts(node):
            with graph.inserting_before(node):
                effects.add(graph.call_function(ops.advance_.default, tuple(node.args)))
            node.replace_all_uses_with(changed[0])
            graph.erase_node(node)
        elif changed:
            raise UnsupportedError(f"model {name!r}: its forward changes {changed[0].name!r} in place")
    if Graph(program).mutation_shows(effects):
        raise UnsupportedError(f"model {name!r}: an operation in place shows elsewhere")
    for node in list(graph.nodes):
        if node.target is aten.batch_norm.default and node.args[5]:
            layer = paths.get(getattr(node.args[3], "name", ""), "").removesuffix("running_mean")
            effects |= _rewrite_batch_norm(graph, node, ops, stored.get(f"{layer}num_batches_tracked"))
        elif node.target is aten.embedding.default and len(node.args) == 3 and node.args[2] >= 0:
            _rewrite_embedding(graph, node)
        else:
            draw(graph, node, ops.noise.default)
    graph.lint()
    return effects


def _rewrite_batch_norm(graph: Any, node: "Node", ops: Any, number: "Node | None") -> "set[Node]":
    x, weight, bias, mean, var, _, momentum, eps, *_ = node.args
    value: Any = x.meta["val"]  # type: ignore[union-attr]
    with graph.inserting_before(node):
        both = graph.call_function(ops.batch_norm.default, (x, weight, bias, eps))
        parts = [graph.call_function(operator.getitem, (both, i)) for i in range(2)]
        effects = set()
        if mean is not None:
            count = math.prod(value.shape) // value.shape[1]
            note, by = (ops.average_batch_, number) if momentum == CUMULATIVE else (ops.note_batch_, momentum)
            effects = {graph.call_function(note.default, (mean, var, parts[1], by, count))}
    made = node.meta["val"], value.new_empty((2, value.shape[1]))
    for new, meta in zip((both, *parts), (made, *made), strict=True):
        new.meta = {**node.meta, "val": meta}
    node.replace_all_uses_with(parts[0])
    graph.erase_node(node)
    return effects


def _rewrite_embedding(graph: Any, node: "Node") -> None:
    """An embedding, and in the places of the index that pads its row of the table, detached."""
    aten = load_torch().ops.aten
    table, index, padding = node.args
    with graph.inserting_before(node):
        row = put(graph, node, aten.detach.default, put(graph, node, aten.select.int, table, 0, padding))
        pads = put(graph, node, aten.unsqueeze.default, put(graph, node, aten.eq.Scalar, index, padding), -1)
        rows = put(graph, node, aten.embedding.default, table, index)
        made = put(graph, node, aten.where.self, pads, row, rows)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
