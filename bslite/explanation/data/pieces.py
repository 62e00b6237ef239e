"""The pieces of a model that takes several ModelSpecs to compute, with the time of each."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bslite.ops import Shape
from bslite.spec.open import OpenModel, Ran

WARM_RUNS = 2
LEAST_RUNS = 2


@dataclass(frozen=True)
class PieceRow:
    """One piece, in all ``calls`` of a run. ``seconds`` are its own, without those of pieces inside it.

    ``how``: "engine", or what else computes it: NumPy, control flow, ONNX's evaluator. ``what``: its nodes;
    ``reason``: why it is a piece of its own. ``depth``: in how many branches and bodies it stands. ``part``:
    the number of its explanation, if it has one; ``floor``: the least time of what the engine computes in it.
    """

    number: int
    how: str
    what: str
    reason: str
    depth: int
    nodes: int
    calls: int
    seconds: float
    share: float
    floor: float | None
    part: int | None
    at: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class PiecesResult:
    """What a `bslite.explanation.PiecesExplanation` holds, described there, and what follows from it."""

    model: str
    shapes: tuple[Shape, ...]
    rows: tuple[PieceRow, ...]
    seconds: float
    runs: int
    parts: tuple[Any, ...]

    @property
    def floor(self) -> float:
        """Seconds that the floors of the explained pieces add up to; the others have none."""
        return sum(r.floor or 0.0 for r in self.rows)

    def spent(self, how: str) -> float:
        """Seconds of a run in the pieces that are computed so."""
        return sum(r.seconds for r in self.rows if r.how == how)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "model": self.model,
            "shapes": [list(s) for s in self.shapes],
            "runs": self.runs,
            "seconds": self.seconds,
            "floor": self.floor,
            "pieces": [asdict(r) for r in self.rows],
            "parts": [part.as_dict() for part in self.parts],
        }


def watched_runs(
    model: OpenModel, given: Sequence[Any], threads: int | None, runs: int
) -> tuple[list[Ran], float]:
    """The pieces of a run with medians of their times, and the median time of a run that nobody watches."""
    for _ in range(WARM_RUNS):
        model.in_pieces(given, None, threads)
    found: list[list[Ran]] = []
    whole: list[float] = []
    for _ in range(max(runs, LEAST_RUNS)):
        start = time.perf_counter()
        model.in_pieces(given, None, threads)
        whole.append(time.perf_counter() - start)
        ran: list[Ran] = []
        model.in_pieces(given, None, threads, ran)
        if found:  # only the last run's inputs are asked for
            found[-1] = [replace(r, inputs=[]) for r in found[-1]]
        found.append(ran)
    last = found[-1]
    same = [ran for ran in found if [_key(r) for r in ran] == [_key(r) for r in last]]
    medians = [
        replace(r, seconds=statistics.median(ran[i].seconds for ran in same)) for i, r in enumerate(last)
    ]
    return medians, statistics.median(whole)


def _key(ran: Ran) -> tuple[Any, ...]:
    return ran.how, ran.what, ran.depth, id(ran.spec)


def rows_of(
    ran: Sequence[Ran], floors: Sequence[float | None], numbered: Callable[[int], int | None]
) -> tuple[PieceRow, ...]:
    """A row for each piece. ``floors``: of one call; ``numbered``: the explanation that a piece has."""
    total = sum(r.seconds for r in ran) or 1.0
    return tuple(
        PieceRow(
            i + 1, r.how, r.what, r.reason, r.depth, r.nodes, r.calls, r.seconds, r.seconds / total,
            None if (floor := floors[i]) is None else floor * r.calls, numbered(i), tuple(r.at),
        )
        for i, r in enumerate(ran)
    )  # fmt: skip
