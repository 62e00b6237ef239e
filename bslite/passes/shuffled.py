"""Convolutions whose channels become pixels make them in the order in which pixels lie.

Of C·R channels, the R that become pixels of one channel follow each other (sub-pixel convolution, arXiv
1609.05158). Pixels lie with their channels side by side: where the R pixels are the outer axis, runs of C
numbers move, else single ones. The rows of the filter change places; results are the same to the bit.
"""

import math
from collections.abc import Mapping
from functools import partial

import numpy as np

from bslite.cache import Derived
from bslite.ops import Kind, Shape
from bslite.passes.draft import Draft
from bslite.passes.families import CONVS
from bslite.spec import Array, ModelSpec, Node

#: By the axes of an image, the order of what becomes larger images: of ``(N, C, *pixels, *sizes)``, and of
#: ``(N, *pixels, C, *sizes)``.
ORDERS = {
    1: ((0, 1, 3, 2), (0, 2, 3, 1)),
    2: ((0, 1, 4, 2, 5, 3), (0, 3, 4, 1, 5, 2)),
    3: ((0, 1, 5, 2, 6, 3, 7, 4), (0, 4, 5, 1, 6, 2, 7, 3)),
}


def pixels_outermost(spec: ModelSpec, derived: Derived | None = None) -> ModelSpec:
    """The model with the channels of convolutions by pixel, then by channel, where they become pixels."""
    inner = {inner: axes for axes, (inner, _) in ORDERS.items()}
    found = [n for n in spec.nodes if n.op == "permute" and n.attrs["order"] in inner]
    if not found:
        return spec
    draft = Draft(spec, derived)
    for node in found:
        _turn(draft, node, inner[node.attrs["order"]])
    return draft.spec_now()


def _turn(draft: Draft, permute: Node, axes: int) -> None:
    """Let the convolution before ``permute`` make its channels in the other order, if it alone reads it."""
    split = draft.alone(permute.inputs[0])
    made = draft.alone(split.inputs[0]) if split is not None and split.op == "reshape" else None
    conv = made
    if made is not None and made.declaration.kind is Kind.POINTWISE and len(made.inputs) == 1:
        conv = draft.alone(made.inputs[0]) if not made.params else None
    if split is None or conv is None or conv.op not in CONVS or conv.attrs["groups"] > 1:
        return
    sizes, shape = draft.fixed(split.name, range(1, 2 + axes)), split.attrs["shape"]
    if sizes is None or sizes[0] == 1 or any(n < -1 or n == 0 for n in shape[1 : 2 + axes]):
        return  # a size of 0 copies the one that stands there
    image = next(iter(draft.reading.get(permute.name, ())), "")
    if permute.name in draft.outputs or not all(
        _become_pixels(s, conv.name, split.name, image) for s in draft.shapes
    ):
        return
    params = {}
    for role, key in conv.params.items():
        given, params[role] = draft.param(key), f"{conv.name}/by pixel.{role}"
        make = partial(_by_pixel, given, sizes[0])
        draft.derive(params[role], ("by pixel", sizes[0]), [given], make)
    draft.put(Node(conv.name, conv.op, conv.inputs, params, conv.attrs))
    shape = (shape[0], *shape[2 : 2 + axes], shape[1], *shape[2 + axes :])
    draft.put(Node(split.name, "reshape", split.inputs, {}, {"shape": shape}))
    draft.put(Node(permute.name, "permute", permute.inputs, {}, {"order": ORDERS[axes][1]}))


def _become_pixels(shapes: Mapping[str, Shape], conv: str, split: str, image: str) -> bool:
    """Whether the channels of the value ``conv`` are those and the pixels of ``split``, and ``image``, the
    first that reads them in their new order, has them all as one image. Heads of an attention are no pixels.
    """
    (n, c, *sizes), (batch, channels, *rest) = shapes[conv], shapes[split]
    if len(rest) != 2 * len(sizes):
        return False
    pixels = rest[: len(sizes)]
    larger = [size * factor for size, factor in zip(sizes, pixels, strict=True)]
    whole = batch == n and channels * math.prod(pixels) == c and rest[len(sizes) :] == sizes
    return whole and shapes.get(image) == (n, channels, *larger)


def _by_pixel(given: Array, channels: int) -> Array:
    """A weight or a bias of which the first axis is by channel, then by pixel, the other way."""
    rows = given.reshape(channels, -1, *given.shape[1:])
    return np.ascontiguousarray(rows.swapaxes(0, 1)).reshape(given.shape)
