"""What `explain` found: a table, plain data, a trace, a report."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bslite.errors import FileError
from bslite.explanation.data.limits import Limits
from bslite.explanation.data.memory import Memory
from bslite.explanation.data.profile import Profile
from bslite.explanation.data.rows import Row
from bslite.ops import Shape


@dataclass(frozen=True)
class Explanation:
    """Where the time of one model at one size goes. ``str()`` is a table. Seconds and bytes throughout.

    ``rows`` are the layers in the order of execution; see `Row`. A stack is followed by those inside it,
    whose times are its own once more. ``profile`` holds the items of one run, ``limits`` what the machine can
    do, ``memory`` who held how much of it when.
    """

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

    def __str__(self) -> str:
        from bslite.explanation.views.text import table

        return table(self)

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

    def save_trace(self, path: Any) -> None:
        """Write the items of one run as a trace for Perfetto (https://ui.perfetto.dev) or chrome://tracing."""
        from bslite.explanation.views.trace import trace_json

        _write(path, trace_json(self))

    def save_html(self, path: Any) -> None:
        """Write a report with plots, one file that needs nothing else. Needs plotly: ``bslite[report]``."""
        from bslite.explanation.views.page import page

        _write(path, page(self))


def _write(path: Any, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as e:
        raise FileError(f"{path}: cannot write ({e.strerror})") from e
