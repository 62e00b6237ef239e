"""Dropouts of a traced graph as products with noise, which torch's generator draws as it does in eager mode.

Those within attention and between layers of recurrent networks are taken out of them.
"""

import operator
from collections.abc import Sequence
from typing import Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.builders import operation
from bslite.frontends.torch.put import put

LIKE = ("rand_like", "randn_like", "randint_like")
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def keep_order(node: Any) -> None:
    """Have ``node``, if it draws numbers in the order in which its operand lies, draw them in that of eager
    mode, row by row or channels last: what bslite hands on is row-major.
    """
    if operation(node) not in LIKE or node.kwargs.get("memory_format") is not None:
        return
    torch = load_torch()
    for form in (torch.contiguous_format, torch.channels_last, torch.channels_last_3d):
        rank = {torch.channels_last: 4, torch.channels_last_3d: 5}.get(form, node.meta["val"].ndim)
        if node.meta["val"].ndim == rank and node.meta["val"].is_contiguous(memory_format=form):
            node.kwargs = {**node.kwargs, "memory_format": form}
            return


def draw(graph: Any, node: Any, noise: Any) -> None:
    """Rewrite ``node`` if it drops something out. ``noise``: the operation that draws."""
    name = operation(node)
    with graph.inserting_before(node):
        if name in ("dropout", "feature_dropout") and node.args[2]:
            x, p, _ = node.args
            made = _dropped(graph, node, noise, x, p, name == "feature_dropout")
        elif name == "scaled_dot_product_attention" and _argument(node, "dropout_p"):
            made = _attention(graph, node, noise)
        elif name in RECURRENT and _layered(node):
            _recurrent(graph, node, noise)
            return
        else:
            return
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _argument(node: Any, name: str) -> Any:
    """An argument by its name in the schema, its default if it is not given."""
    for place, argument in enumerate(node.target._schema.arguments):
        if argument.name == name:
            given = node.args[place] if place < len(node.args) else node.kwargs.get(name)
            return argument.default_value if given is None else given
    return None


def _dropped(graph: Any, at: Any, noise: Any, x: Any, p: float, whole: bool = False) -> Any:
    """``x`` times noise; with ``whole``, of a number for each image and channel."""
    if not p:
        return x
    drawn = _noise(graph, at, noise, x.meta["val"], p, whole)
    return put(graph, at, load_torch().ops.aten.mul.Tensor, x, drawn)


def _noise(graph: Any, at: Any, noise: Any, value: Any, p: float, whole: bool = False) -> Any:
    """The noise for a ``value``, in the order that torch draws it in: all of it where values are repeated."""
    size, stride = list(value.shape), list(load_torch().empty_like(value).stride())
    if whole:
        size = [*size[:2], *[1] * (len(size) - 2)]
        stride = [size[1], *[1] * (len(size) - 1)]
    drawn = graph.call_function(noise, (size, stride, p))
    drawn.meta = {**at.meta, "val": value.new_empty_strided(size, stride)}
    return drawn


def _attention(graph: Any, node: Any, noise: Any) -> Any:
    """The same with noise that its weights are multiplied by: torch's own way where there is a dropout."""
    torch = load_torch()
    q, k, v = node.args[:3]
    mask, p, causal, scale, grouped = (
        _argument(node, name) for name in ("attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    )
    queries, keys = (x.meta["val"] for x in (q, k))
    own = 3 if grouped else 2  # axes of queries that keys have not
    lead = torch.broadcast_shapes(queries.shape[:-own], keys.shape[:-own])
    lead = (*lead, *queries.shape[-own:-2])
    drawn = _noise(graph, node, noise, queries.new_empty((*lead, queries.shape[-2], keys.shape[-2])), p)
    return put(graph, node, torch.ops.bslite.attention.default, q, k, v, mask, drawn, causal, scale, grouped)


def _layered(node: Any) -> bool:
    """Whether a recurrent network has dropouts between its layers."""
    dropped = _argument(node, "train") and _argument(node, "dropout")
    return bool(dropped and node.target._overloadname == "input")


def _recurrent(graph: Any, node: Any, noise: Any) -> None:
    """Layer by layer, each a recurrent network of its own, time first."""
    aten = load_torch().ops.aten
    x, state, params, biased, layers, p, _, both, batch_first = node.args
    states: Sequence[Any] = state if isinstance(state, (list, tuple)) else [state]
    each, directions = len(params) // layers, 1 + both

    def new(target: Any, *args: Any) -> Any:
        return put(graph, node, target, *args)

    x = new(aten.transpose.int, x, 0, 1) if batch_first else x
    ends: list[list[Any]] = [[] for _ in states]
    for i in range(layers):
        if i:
            x = _dropped(graph, node, noise, x, p)
        own = [new(aten.slice.Tensor, s, 0, i * directions, (i + 1) * directions) for s in states]
        before = own if isinstance(state, (list, tuple)) else own[0]
        made = new(
            node.target, x, before, params[i * each : (i + 1) * each], biased, 1, 0.0, True, both, False
        )
        x, *last = (_item(graph, node, made, j) for j in range(1 + len(states)))
        for found, end in zip(ends, last, strict=True):
            found.append(end)
    x = new(aten.transpose.int, x, 0, 1) if batch_first else x
    results = [x, *(new(aten.cat.default, found, 0) for found in ends)]
    for user in list(node.users):
        user.replace_all_uses_with(results[user.args[1]])
        graph.erase_node(user)
    graph.erase_node(node)


def _item(graph: Any, at: Any, made: Any, i: int) -> Any:
    item: Any = graph.call_function(operator.getitem, (made, i))
    item.meta = {**at.meta, "val": made.meta["val"][i]}
    return item
