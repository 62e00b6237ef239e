"""The order of layers where branches run side by side: level by level, so that threads need not wait."""

from collections.abc import Sequence

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
