"""What a trial found."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bslite.cli.rivals import ENGINE
from bslite.cli.trial.bits import Batch
from bslite.cli.trial.peers import Peer
from bslite.verification import Check, Verification

#: Ratios of times between these two are no difference.
EVEN = 0.95, 1.05
BUSY = 3.0


@dataclass
class Trial:
    """All that was found out about one model; seconds and bytes throughout."""

    title: str
    takes: Sequence[str]
    gives: Sequence[str]
    shapes: Sequence[Sequence[int]]  # of the inputs it was tried with
    threads: int
    loading: float
    first: float  # to the first answer, compiling or loading kernels included
    pieces: Sequence[str]
    memory: Mapping[str, int]
    parameters: int
    checked: Verification
    on_threads: Mapping[int, bool]  # number of threads -> whether the answer has the same bits
    batch: Batch
    peers: Sequence[Peer]
    rounds: Mapping[str, list[float]]  # engine -> seconds of a call in each round
    missing: Sequence[str] = field(default_factory=tuple)  # peers that are not installed

    @property
    def worst(self) -> Check | None:
        """The output that comes closest to its bound, or is furthest beyond it."""
        return max(self.checked.outputs, key=lambda c: c.error / c.bound, default=None)

    @property
    def same_bits(self) -> bool:
        """Whether no promise of equal bits was broken."""
        return (
            self.checked.repeatable
            and self.checked.threads_agree is not False
            and all(self.on_threads.values())
            and self.batch.passed
        )

    @property
    def passed(self) -> bool:
        """Whether every error is within its bound and bits are the same."""
        return self.same_bits and self.checked.passed

    @property
    def medians(self) -> dict[str, float]:
        """Seconds of a call of each engine."""
        return {name: statistics.median(each) for name, each in self.rounds.items()}

    @property
    def busy(self) -> bool:
        """Whether something else must have used the cores: rounds of one engine are that far apart."""
        return any(max(each) > BUSY * min(each) for each in self.rounds.values())

    @property
    def ratios(self) -> dict[str, float]:
        """Each peer's time over bslite's: above 1, bslite is faster."""
        times = self.medians
        return {name: t / times[ENGINE] for name, t in times.items() if name != ENGINE}

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        worst = self.worst
        return {
            "model": self.title,
            "loads": True,
            "passed": self.passed,
            "inputs": list(self.takes),
            "outputs": list(self.gives),
            "tried_with": [list(s) for s in self.shapes],
            "threads": self.threads,
            "seconds_to_load": self.loading,
            "seconds_to_first_answer": self.first,
            "pieces": list(self.pieces),
            "error": None if worst is None else worst.error,
            "bound": None if worst is None else worst.bound,
            "out_of_bound": [c.name for c in self.checked.failures],
            "bits": {
                "same": self.same_bits,
                "from_run_to_run": self.checked.repeatable,
                "on_threads": {str(n): same for n, same in self.on_threads.items()},
                "batch": self.batch.verdict,
                "batch_told": self.batch.told,
            },
            "memory": {**self.memory, "parameters": self.parameters},
            "seconds": dict(self.rounds),
            "ratios": self.ratios,
            "busy": self.busy,
            "peers": {p.name: {"why_not": p.why or None, "distance": p.apart} for p in self.peers},
            "not_installed": list(self.missing),
        }
