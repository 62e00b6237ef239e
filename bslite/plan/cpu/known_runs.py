"""The runs of layers that a search found for other sizes of a model, taken again for sizes near by.

The search is the larger part of a new size's plan. Which runs are best changes slowly with the size, and no
result depends on them.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from bslite.ops import Shape
from bslite.passes import Layer
from bslite.plan.core.bands import can_band
from bslite.spec import ModelSpec

NEAR = 1.3  # factor by which each size may differ
MOST = 16  # searches that are kept


class Run(NamedTuple):
    """Layers ``[start, stop)`` in ``bands`` bands, and the predicted cycles."""

    start: int
    stop: int
    bands: int
    cycles: float


class Found(NamedTuple):
    """What a search found for images of these ``shapes``."""

    key: Hashable
    shapes: tuple[Shape, ...]
    runs: list[Run]


class KnownRuns:
    """The searches of a model. ``key`` tells apart what is no matter of sizes: layers, batch, threads."""

    def __init__(self) -> None:
        self._found: list[Found] = []

    def near(self, key: Hashable, shapes: Sequence[Shape]) -> list[Run] | None:
        """The runs found for images of nearly these shapes, the latest first; None if there are none."""
        for found in reversed(self._found):
            if found.key == key and all(map(_near, found.shapes, shapes)):
                return found.runs
        return None

    def note(self, key: Hashable, shapes: Sequence[Shape], runs: Sequence[Run]) -> None:
        """Keep what a search found."""
        self._found = [*self._found[1 - MOST :], Found(key, tuple(shapes), list(runs))]


def _near(a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and all(n <= NEAR * m and m <= NEAR * n for n, m in zip(a, b, strict=True))


def fit(
    runs: Sequence[Run], layers: Sequence[Layer], spec: ModelSpec, shapes: Mapping[str, Shape],
    apart: Callable[[int], bool],
) -> bool:  # fmt: skip
    """Whether runs can be taken for images of these shapes: each band has a row of all that leaves it."""
    last = {name: i for i, layer in enumerate(layers) for name in layer.inputs}
    last |= dict.fromkeys(spec.outputs, len(layers))
    for run in runs:
        for i in range(run.start, run.stop):
            layer = layers[i]
            if not apart(i) or not can_band(layer, spec, shapes):
                return False
            leaves = i == run.stop - 1 or last.get(layer.name, -1) >= run.stop
            if leaves and shapes[layer.name][2] < run.bands:
                return False
    return True
