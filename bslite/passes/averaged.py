"""Pointwise convolutions before an average pool: the pool goes first, and leaves fewer pixels to multiply.

Both are linear, one along channels and the other along pixels, and the weights of a mean sum to one:
``mean(W·x + b) = W·mean(x) + b``. DenseNet (arXiv 1608.06993) has such transitions between its blocks.
"""

import math

from bslite.cache import Derived
from bslite.passes.draft import Draft
from bslite.passes.enlarged import LEAST
from bslite.passes.families import CONVS
from bslite.spec import ModelSpec, Node

POOLS = tuple(f"{kind}_pool{axes}d" for kind in ("avg", "adaptive_avg") for axes in (1, 2, 3))
FEW = 16  # output channels of a convolution: the pool reads its inputs instead, which may be many more


def pool_first(spec: ModelSpec, derived: Derived | None = None) -> ModelSpec:
    """The model with average pools in front of pointwise convolutions (1 x 1) that they alone read."""
    if not any(n.op in POOLS for n in spec.nodes):
        return spec
    draft = Draft(spec, derived)
    for pool in list(draft.nodes.values()):
        conv = draft.alone(pool.inputs[0]) if pool.op in POOLS else None
        if conv is not None and _commute(draft, conv, pool):
            first = Node(f"{pool.name}/first", pool.op, conv.inputs, {}, pool.attrs)
            draft.put(Node(pool.name, conv.op, (first.name,), conv.params, conv.attrs), first)
    return draft.spec_now()


def _commute(draft: Draft, conv: Node, pool: Node) -> bool:
    """Whether the pool may go first, and that is less work."""
    if conv.op not in CONVS or {*conv.attrs["stride"]} != {1} or any(conv.attrs["padding"]):
        return False
    outputs, inputs, *taps = draft.param(conv.params["weight"]).shape
    means = not any(pool.attrs.get("padding", ())) and pool.attrs.get("divisor_override") is None
    if max(taps) > 1 or conv.attrs["groups"] > 1 or outputs < FEW or not means:
        return False
    area = min(math.prod(s[conv.name]) / math.prod(s[pool.name]) for s in draft.shapes)
    return inputs * (1 - 1 / area) >= LEAST
