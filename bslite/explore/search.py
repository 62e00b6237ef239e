"""The search: every point of a space priced, the cheapest first.

A machine takes part by two functions, in a module or an object of its own (`Explorer`): ``space(problem,
machine)`` and ``estimate(problem, machine, point)``. The spaces are small (thousands of points at most), so
all of it is looked at: nothing is pruned that a person might want to see. The order is total and always the
same: fewer predicted seconds first; of equal ones (to 12 digits), the point that comes first in the space,
whose axes list what to prefer first.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from bslite.errors import EngineError
from bslite.explore.problem import Recurrent
from bslite.explore.space import Point, Space

M = TypeVar("M", contravariant=True)


@dataclass(frozen=True)
class Part:
    """A share of the predicted time. What is ``hidden`` runs while something else does, and adds nothing."""

    name: str
    seconds: float
    hidden: bool = False


@dataclass(frozen=True)
class Estimate:
    """What a point is predicted to cost, and why; ``notes`` are figures beside the time, as units used."""

    point: Point
    parts: tuple[Part, ...]
    notes: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Seconds of the whole run: the sum of the parts that are not hidden."""
        return sum(part.seconds for part in self.parts if not part.hidden)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "point": self.point.as_dict(),
            "seconds": self.seconds,
            "parts": {part.name: part.seconds for part in self.parts if not part.hidden},
            "hidden": {part.name: part.seconds for part in self.parts if part.hidden},
            "notes": dict(self.notes),
        }


class Explorer(Protocol[M]):
    """What a kind of machine offers."""

    def space(self, problem: Recurrent, machine: M) -> Space:
        """The choices there are for this problem on this machine."""
        ...

    def estimate(self, problem: Recurrent, machine: M, point: Point) -> Estimate:
        """What a point costs."""
        ...


@dataclass(frozen=True)
class Found:
    """A search's outcome: feasible points by rank, and how many points each constraint ruled out."""

    problem: Recurrent
    space: Space
    ranked: tuple[Estimate, ...]
    ruled_out: Mapping[str, int]

    @property
    def best(self) -> Estimate:
        """The point to use."""
        return self.ranked[0]

    def as_dict(self, top: int | None = None) -> dict[str, Any]:
        """For JSON, with the ``top`` best points only if given."""
        return {
            "space": {
                "name": self.space.name,
                "points": len(self.space),
                "axes": {axis.name: list(axis.values) for axis in self.space.axes},
                "ruled_out": dict(self.ruled_out),
            },
            "ranked": [estimate.as_dict() for estimate in self.ranked[:top]],
        }


def search(explorer: Explorer[M], problem: Recurrent, machine: M) -> Found:
    """All feasible points, ranked. Raises EngineError, saying what rules points out, if there is none."""
    space = explorer.space(problem, machine)
    ruled_out: Counter[str] = Counter()
    priced = []
    for point in space.candidates():
        broken = space.broken(point)
        if broken is not None:
            ruled_out[broken.meaning] += 1
        else:
            priced.append(explorer.estimate(problem, machine, point))
    if not priced:
        reasons = "; ".join(f"{meaning} ({count})" for meaning, count in ruled_out.most_common())
        example = next(space.candidates())
        raise EngineError(
            f"{problem} fits this machine at none of {len(space)} points of {space.name}. "
            f"Ruled out: {reasons}. For example {example}: {space.violation(example)}"
        )
    priced.sort(key=lambda e: float(f"{e.seconds:.12g}"))  # stable: equals stay in the space's order
    return Found(problem, space, tuple(priced), dict(ruled_out))
