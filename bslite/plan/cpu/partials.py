"""Partial sums of what is summed over a batch: how many, of which images. Shapes alone decide, so bits do."""

import math
from collections.abc import Mapping

from bslite.ops import Shape
from bslite.passes.families import UPDATES
from bslite.spec import Node

PART = 1024  # windows of a part, of which ...
PARTS = 64  # ... there are so many at most, and no more than make ...
PARTIALS = 1 << 22  # ... so many partial sums
LEAST = 512  # windows of an image that has parts of its own


def parts_of_image(images: int, windows: int, weights: int, elements: int) -> int:
    """The parts of the gradient of a filter that each image has for itself, 0 where images share parts.

    ``windows`` and ``elements``: those of an image, of its values and their gradients. Partial sums are to be
    few beside them.
    """
    if windows < LEAST or images * weights > PARTIALS or 2 * weights > elements:
        return 0
    return max(1, min(PARTS // images, -(-windows // PART)))


def sums_apart(node: Node, shapes: Mapping[str, Shape]) -> bool:
    """Whether an op that sums over images makes a part of the sum from each image alone."""
    x = shapes[node.inputs[0]]
    if node.op not in UPDATES:
        return math.prod(x[2:]) > 1  # images of one pixel are the pixels of one image
    g, weight = shapes[node.inputs[1]], shapes[node.name]
    elements = math.prod(x[1:]) + math.prod(g[1:])
    return parts_of_image(x[0], math.prod(g[2:]), math.prod(weight), elements) > 0
