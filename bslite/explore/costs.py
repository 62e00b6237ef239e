"""Costs by name, summed over layers, and the estimate that they add up to."""

from dataclasses import dataclass, field

from bslite.explore.search import Estimate, Part
from bslite.explore.space import Point


@dataclass
class Costs:
    """Cycles or seconds of a run by what they are spent on. ``hidden`` ones pass while others are counted."""

    parts: dict[str, float] = field(default_factory=dict)
    hidden: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """The sum of the parts that are not hidden."""
        return sum(self.parts.values())

    def add(self, name: str, cost: float) -> None:
        """Count ``cost`` under ``name``."""
        self.parts[name] = self.parts.get(name, 0) + cost

    def hide(self, name: str, cost: float) -> None:
        """Count a ``cost`` that other parts cover."""
        self.hidden[name] = self.hidden.get(name, 0) + cost

    def estimate(self, point: Point, notes: dict[str, float | str], seconds: float = 1.0) -> Estimate:
        """The price of ``point``; each cost counts as so many ``seconds``."""
        counted = [Part(name, cost * seconds) for name, cost in self.parts.items()]
        covered = [Part(name, cost * seconds, hidden=True) for name, cost in self.hidden.items()]
        return Estimate(point, (*counted, *covered), notes)
