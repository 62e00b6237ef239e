"""Attention that stays in torch, because its keys grow from call to call, as torch computes it fastest.

Heads that share keys and values read them where they are, not copies; and few rows in 16 bits are computed in
float32, for which torch's kernel takes a seventh of the time over 3,000 keys (decision 053). Keys that
autocast would round for them are read as they are.
"""

from collections.abc import Mapping
from typing import Any

import torch

from bslite.frontends.torch.values import dims, is_narrow

Node = torch.fx.Node
aten = torch.ops.aten
TO, END = aten.to.dtype, 2**63 - 1
ATTENTION = aten.scaled_dot_product_attention.default
#: Operations that copies of keys and values are made by.
COPIES = (aten.reshape.default, aten.expand.default, aten.slice.Tensor, aten.unsqueeze.default, TO)
FEW = 8  # rows


def copied(graph: torch.fx.Graph, node: Node, new: Mapping[Node, Node]) -> Node:
    """An attention node of another graph in ``graph``, perhaps with other operations around it; ``new``: the
    nodes that stand for those before it.
    """
    made = graph.node_copy(node, new.__getitem__)
    q, k, v, *more = node.args
    if node.kwargs.get("dropout_p", more[1] if len(more) > 1 else 0) or _value(node).device.type != "cpu":
        return made
    rows = dims(_value(q))[-2]
    few = is_narrow(_value(q)) and isinstance(rows, int) and rows <= FEW
    if few:
        q, k, v = (_uncast(x, new) for x in (q, k, v))
        made.args = (new[q], new[k], new[v], *made.args[3:])
    keys, values = _source(k), _source(v)
    if keys in new and values in new and _shared(q, keys, values):
        made.args = (made.args[0], new[keys], new[values], *made.args[3:])
        made.kwargs = {**made.kwargs, "enable_gqa": True}
    if not few:
        return made
    with graph.inserting_before(made):
        made.args = tuple(
            graph.call_function(TO, (x, torch.float32)) if is_narrow(_value(old)) else x
            for x, old in zip(made.args, (q, k, v, *more), strict=True)
        )
    return graph.call_function(TO, (made, _value(node).dtype))


def _value(node: Any) -> Any:
    return node.meta["val"] if isinstance(node, Node) else None


def _uncast(x: Any, new: Mapping[Node, Node]) -> Any:
    """The float32 value that ``x`` rounds to 16 bits, if it is that and the value is there; else ``x``."""
    source = x.args[0] if x.target is TO else None
    return source if source in new and _value(source).dtype == torch.float32 else x


def _source(repeated: Any) -> Any:
    """What has a head for several of ``repeated``, ``[batch, heads, keys, features]``, where that is made by
    an axis behind the heads along which it is expanded; else None.
    """
    wide = repeated.args[0] if repeated.target is aten.reshape.default else None
    if wide is None or wide.target is not aten.expand.default or _value(wide).ndim != 5:
        return None
    source = wide.args[0]
    while source.target is aten.slice.Tensor and source.args[2:] == (0, END):
        source = source.args[0]
    if source.target is not aten.unsqueeze.default or source.args[1] not in (2, -3):
        return None
    batch, heads, times, keys, features = dims(_value(wide))
    made, found = dims(_value(repeated)), dims(_value(source.args[0]))
    # A length has a symbol of its own in each cache. One that grows is not 1, which could be expanded.
    grows = len(found) == 4 and (found[2] == keys or not isinstance(found[2], int))
    whole = (made[:2], made[3:]) == ((batch, heads * times), (features,)) and made[2] == keys
    same = found[:2] == (batch, heads) and found[3:] == (features,)
    return source.args[0] if grows and whole and same else None


def _shared(q: Any, keys: Any, values: Any) -> bool:
    """Whether the heads of q share those of keys and values evenly."""
    heads, own, others = (dims(_value(x))[1] for x in (q, keys, values))
    return isinstance(heads, int) and isinstance(own, int) and own == others and heads % own == 0


def unread(graph: torch.fx.Graph) -> None:
    """Drop what only copies of keys and values were made of."""
    for node in reversed(graph.nodes):
        if node.target in COPIES and not node.users:
            graph.erase_node(node)
