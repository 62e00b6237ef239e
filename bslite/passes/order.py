"""The order of layers."""

import math
from collections.abc import Mapping, Sequence

from bslite.ops import Shape
from bslite.passes.fuse import Layer


def by_level(layers: Sequence[Layer]) -> list[Layer]:
    """The layers sorted by their distance from the inputs (longest path), otherwise as they were.

    A layer's inputs have smaller levels, so the order stays topological; layers of one level are independent.
    This is the graph's width (arXiv 1908.04705) laid out for threads that share each layer's items: while one
    finishes the last item of a branch, the others begin the next branch.
    """
    level: dict[str, int] = {}
    for layer in layers:
        level[layer.name] = 1 + max((level.get(name, 0) for name in layer.inputs), default=0)
    return sorted(layers, key=lambda layer: level[layer.name])


def most_alive(layers: Sequence[Layer], shapes: Mapping[str, Shape]) -> int:
    """The elements of all values that are alive at once, at most, where layers run in this order."""
    last = {name: i for i, layer in enumerate(layers) for name in layer.inputs}
    alive = most = 0
    for i, layer in enumerate(layers):
        alive += math.prod(shapes[layer.name])
        most = max(most, alive)
        gone = {name for name in (*layer.inputs, layer.name) if last.get(name, i) == i}
        alive -= sum(math.prod(shapes[name]) for name in gone)
    return most
