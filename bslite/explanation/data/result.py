"""The data of an explanation on the CPU."""

from dataclasses import asdict, dataclass
from typing import Any

from bslite.explanation.data.limits import Limits
from bslite.explanation.data.memory import Memory
from bslite.explanation.data.profile import Profile
from bslite.explanation.data.rows import Row
from bslite.ops import Shape


@dataclass(frozen=True)
class Result:
    """What a `bslite.Explanation` holds, described there, and what follows from it."""

    model: str
    shapes: tuple[Shape, ...]
    rows: tuple[Row, ...]
    profile: Profile
    limits: Limits
    memory: Memory

    @property
    def timed(self) -> list[Row]:
        """The rows as they were traced, a stack being one of them; they add up to the run."""
        return [r for r in self.rows if not r.inside]

    @property
    def layers(self) -> list[Row]:
        """The rows without the stacks, whose layers stand for them; they too add up to the run."""
        return [r for r in self.rows if r.inside or r.stack is None]

    @property
    def floor(self) -> float:
        """Seconds that the floors of all layers, each on its own, add up to."""
        return sum(r.floor for r in self.layers)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON; the single items are in the trace, not here."""
        p = self.profile
        return {
            "model": self.model,
            "shapes": [list(s) for s in self.shapes],
            "threads": p.threads,
            "runs": p.runs,
            "seconds": p.untraced,
            "traced_seconds": p.wall,
            "floor": self.floor,
            "walkers": [{"busy": busy, "idle": idle} for busy, idle in p.walkers()],
            "limits": self.limits.as_dict(),
            "memory": asdict(self.memory),
            "rows": [
                {**asdict(r), "gflops": r.gflops, "gbytes": r.gbytes, "roofline": r.roofline}
                for r in self.rows
            ],
        }
