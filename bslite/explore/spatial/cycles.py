"""The price of a mapping: cycles by what they are spent on."""

from __future__ import annotations

from dataclasses import dataclass, field

from bslite.explore.search import Estimate, Part
from bslite.explore.space import Point


@dataclass
class Cycles:
    """Cycles of a run, summed over its layers. ``hidden`` ones pass while others are counted."""

    parts: dict[str, float] = field(default_factory=dict)
    hidden: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, cycles: float) -> None:
        """Count ``cycles`` under ``name``."""
        self.parts[name] = self.parts.get(name, 0) + cycles

    def hide(self, name: str, cycles: float) -> None:
        """Count ``cycles`` that other parts cover."""
        self.hidden[name] = self.hidden.get(name, 0) + cycles

    def estimate(self, point: Point, clock: float, notes: dict[str, float | str]) -> Estimate:
        """The price of ``point`` in seconds, at ``clock`` cycles a second."""
        seconds = 1 / clock
        return Estimate(
            point,
            tuple(Part(name, cycles * seconds) for name, cycles in self.parts.items())
            + tuple(Part(name, cycles * seconds, hidden=True) for name, cycles in self.hidden.items()),
            {**notes, "cycles": sum(self.parts.values())},
        )
