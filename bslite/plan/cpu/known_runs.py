"""The runs of layers that searches found for other sizes of a model, taken again for this one.

A search tries all runs, and would be the larger part of a new size's plan. Which runs are best changes
slowly with the size, and no result depends on them. For a size near by, the same runs are taken. For one
further off, runs are chosen among those that searches found, in numbers of bands that suit it.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import NamedTuple

from bslite.ops import Shape
from bslite.passes import Layer
from bslite.plan.core.bands import can_band
from bslite.spec import ModelSpec

NEAR = 1.3  # factor by which each size may differ for the same runs
FAR = 4.0  # and for a choice among them
MOST = 16  # searches that are kept, and choices


class Run(NamedTuple):
    """Layers ``[start, stop)`` in ``bands`` bands, and the predicted cycles."""

    start: int
    stop: int
    bands: int
    cycles: float


class Found(NamedTuple):
    """What was found for images of these ``shapes``."""

    key: Hashable
    shapes: tuple[Shape, ...]
    runs: list[Run]


class KnownRuns:
    """The searches of a model. ``key`` tells apart what is no matter of sizes: layers, batch, threads."""

    def __init__(self) -> None:
        self._searched: list[Found] = []
        self._chosen: list[Found] = []

    def near(self, key: Hashable, shapes: Sequence[Shape]) -> list[Run] | None:
        """The runs found for images of nearly these shapes, the latest first; None if there are none."""
        for found in reversed([*self._searched, *self._chosen]):
            if found.key == key and _within(NEAR, found.shapes, shapes):
                return found.runs
        return None

    def among(self, key: Hashable, shapes: Sequence[Shape]) -> list[Run] | None:
        """The runs that searches found for images not too different from these; None without a search."""
        searches = [f for f in list(self._searched) if f.key == key and _within(FAR, f.shapes, shapes)]
        return [run for found in searches for run in found.runs] if searches else None

    def note(
        self, key: Hashable, shapes: Sequence[Shape], runs: Sequence[Run], among: Sequence[Run] | None
    ) -> None:
        """Keep what a search found, or what was chosen ``among`` the runs of others."""
        found = Found(key, tuple(shapes), list(runs))
        if among is None:
            self._searched = [*self._searched[1 - MOST :], found]
        else:
            self._chosen = [*self._chosen[1 - MOST :], found]


def _within(factor: float, some: Sequence[Shape], others: Sequence[Shape]) -> bool:
    """Whether no size differs by more than ``factor``."""
    return len(some) == len(others) and all(
        len(a) == len(b) and all(n <= factor * m and m <= factor * n for n, m in zip(a, b, strict=True))
        for a, b in zip(some, others, strict=True)
    )


def fit(
    runs: Sequence[Run], layers: Sequence[Layer], spec: ModelSpec, shapes: Mapping[str, Shape],
    second: Collection[str], apart: Callable[[int], bool],
) -> bool:  # fmt: skip
    """Whether runs can be taken for images of these shapes: each band has a row of all that leaves it."""
    last = {name: i for i, layer in enumerate(layers) for name in layer.inputs}
    last |= dict.fromkeys(spec.outputs, len(layers))
    for run in runs:
        for i in range(run.start, run.stop):
            layer = layers[i]
            if not apart(i) or not can_band(layer, spec, shapes, second):
                return False
            leaves = i == run.stop - 1 or last.get(layer.name, -1) >= run.stop
            if leaves and shapes[layer.name][2] < run.bands:
                return False
    return True
