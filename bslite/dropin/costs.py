"""The share of the work that an operation has, estimated from the shapes that torch traced."""

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from bslite.frontends.torch.builders import operation
from bslite.frontends.torch.graph import has_tensors, is_getitem
from bslite.frontends.torch.values import substituted

Node = torch.fx.Node
NONE: Mapping[Any, int] = MappingProxyType({})
BATCH = 4  # the batch at which the shares are compared
#: Operations that only view memory in another way.
VIEWS = (
    "view", "reshape", "_unsafe_view", "flatten", "unflatten", "unsqueeze", "squeeze", "permute", "transpose",
    "t", "expand", "expand_as", "slice", "select", "narrow", "split", "split_with_sizes", "chunk", "unbind",
    "alias", "detach", "view_as", "reshape_as", "swapaxes", "movedim", "view_as_real", "view_as_complex",
)  # fmt: skip
#: Operations that do nothing to values at inference, or copy them.
COPIES = (
    "clone",
    "contiguous",
    "to",
    "_to_copy",
    "dropout",
    "feature_dropout",
    "cat",
    "stack",
    "lift_fresh_copy",
    "bslite.packed",
    "bslite.unpacked",
    "bslite.whole",
    "bslite.lengths",
)


def flops(node: Node, free: Mapping[Any, int] = NONE) -> int:
    """Floating-point operations, a multiply-add counted as two. ``free``: numbers for free sizes.

    The count is exact for matrix products and convolutions, one per element of the result elsewhere, and none
    for views.
    """
    if is_getitem(node) or not has_tensors(node):
        return 0
    name, made = operation(node), math.prod(sizes(node, free))
    if name in VIEWS:
        return 0
    operands = [a for a in node.args if isinstance(a, torch.fx.Node) and has_tensors(a)]
    if name.startswith(("conv", "_conv", "thnn_conv")) and len(operands) > 1:
        weight = sizes(operands[1], free)
        transposed = "transpose" in name or (len(node.args) > 6 and node.args[6] is True)
        each = math.prod(weight) // max(1, weight[0])
        return 2 * each * (math.prod(sizes(operands[0], free)) if transposed else made)
    if name in ("linear", "mm", "bmm", "matmul") and operands:
        return 2 * made * (sizes(operands[0], free) or [1])[-1]
    if name in ("addmm", "baddbmm") and len(operands) > 1:
        return 2 * made * sizes(operands[1], free)[-1]
    if "scaled_dot_product" in name and len(operands) > 2:
        q, k = sizes(operands[0], free), sizes(operands[1], free)
        return 4 * math.prod(q) * k[-2]
    if name in ("bslite.recurrent", "lstm", "gru", "rnn_tanh", "rnn_relu"):
        lists: list[Any] = [a for a in node.args if isinstance(a, (list, tuple))]
        steps = math.prod(sizes(operands[0], free)[:2])
        return 2 * steps * sum(math.prod(sizes(w, free)) for w in lists[-1] if len(sizes(w, free)) > 1)
    if name.startswith("linalg") and operands:
        side = sizes(operands[0], free)
        return math.prod(side) * (side or [1])[-1]
    return made


def total(nodes: Iterable[Node], free: Mapping[Any, int] = NONE) -> int:
    """The flops of all nodes."""
    return sum(flops(node, free) for node in nodes)


def does_work(node: Node) -> bool:
    """Whether a node does more than move values."""
    return not is_getitem(node) and has_tensors(node) and operation(node) not in (*VIEWS, *COPIES)


def sizes(node: Node, free: Mapping[Any, int] = NONE) -> list[int]:
    """The sizes of a node's (first) tensor, at a batch of `BATCH`."""
    value = node.meta["val"]
    tensor = value[0] if isinstance(value, (tuple, list)) else value
    return [concrete(d, free) for d in getattr(tensor, "shape", ())]


def concrete(size: Any, free: Mapping[Any, int] = NONE) -> int:
    """A traced size at a batch of `BATCH`."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if expression.is_Symbol:  # as most are
        return free.get(expression, BATCH)
    return int(substituted(expression, {s: free.get(s, BATCH) for s in expression.free_symbols}))
