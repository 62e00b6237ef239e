"""What all comparisons with rivals share: their times by name, and failures as lines of the report."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.tables import median_ratio


class Unavailable(Exception):
    """This rival cannot run here; the message says why."""


@dataclass(kw_only=True)
class Times:
    """Seconds by rival; those of bslite have names that begin with "bslite"."""

    rounds: dict[str, list[float]] = field(default_factory=dict)  # one median per round
    seconds: dict[str, float] = field(default_factory=dict)  # median over the rounds
    failures: dict[str, str] = field(default_factory=dict)  # why a rival has no time

    @property
    def best_peer(self) -> str | None:
        """The fastest rival that is not ours."""
        others = {name: s for name, s in self.seconds.items() if not name.startswith("bslite")}
        return min(others, key=others.__getitem__) if others else None

    def ratio_to(self, other: str | None) -> float | None:
        """How many times as long as bslite ``other`` takes: the median over rounds of the ratio in each."""
        if other is None or not {"bslite", other} <= self.rounds.keys():
            return None
        return median_ratio(self.rounds[other], self.rounds["bslite"])

    @contextlib.contextmanager
    def noting(self, engine: str) -> Iterator[None]:
        """Turn whatever a rival raises into a line of the report: rivals are other people's programs."""
        try:
            yield
        except Unavailable as e:
            self.failures[engine] = str(e)
        except Exception as e:
            first = (str(e).strip().splitlines() or [""])[0]
            self.failures[engine] = f"{type(e).__name__}: {first[:200]}"
