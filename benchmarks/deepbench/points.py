"""DeepBench's list of recurrent layers for serving, and which of them are run in how many steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GATES = {"lstm": 4, "gru": 3}
BATCHES = (1, 2, 4)
#: Cell, hidden units (and inputs), time steps: `inference_server_set` of DeepBench's rnn_problems.h.
SERVER: tuple[tuple[str, int, int], ...] = (
    ("lstm", 512, 25),
    ("lstm", 1024, 25),
    ("lstm", 2048, 25),
    ("lstm", 1536, 50),
    ("lstm", 256, 150),
    *(("gru", hidden, steps) for hidden in (2816, 2048, 1536, 2560) for steps in (1500, 750, 375, 187)),
    ("gru", 512, 1),
    ("gru", 1024, 1500),
)
SHORT = 2 << 20  # bytes of weights: a layer of no more is quick enough in full


@dataclass(frozen=True)
class Point:
    """A layer and the number of time steps it is run for; ``lengths``: of the entries it stands for."""

    cell: str
    hidden: int
    steps: int
    lengths: tuple[int, ...]

    @property
    def name(self) -> str:
        """``lstm 512``."""
        return f"{self.cell} {self.hidden}"

    @property
    def weight_bytes(self) -> int:
        """Of the recurrent weights, ``[gates * hidden, hidden]``; those of the inputs are as many."""
        return 4 * GATES[self.cell] * self.hidden * self.hidden

    @property
    def streamed(self) -> int:
        """Bytes that call after call goes round in: the recurrent weights, step by step; both with one
        step.
        """
        return self.weight_bytes * (2 if self.steps == 1 else 1)

    @property
    def cut(self) -> bool:
        """Whether it is shorter than in the list."""
        return self.lengths != (self.steps,)


def cut_points(cap: int, entries: Sequence[tuple[str, int, int]] = SERVER) -> list[Point]:
    """The list with sequences cut to ``cap`` steps, but for layers of few weights. Entries that are the same
    then are one point, for a step of a long sequence is as any other.
    """
    found: dict[tuple[str, int, int], list[int]] = {}
    for cell, hidden, steps in entries:
        whole = Point(cell, hidden, steps, ()).weight_bytes <= SHORT
        found.setdefault((cell, hidden, steps if whole else min(steps, cap)), []).append(steps)
    return [Point(*point, tuple(lengths)) for point, lengths in found.items()]


def chosen(names: Sequence[str], points: Sequence[Point]) -> list[Point]:
    """Those of the names, as `Point.name` has them; ValueError for one that is not in the list."""
    known = dict.fromkeys(p.name for p in points)
    if wrong := [n for n in names if n not in known]:
        raise ValueError(f"no such layer: {', '.join(wrong)}; there are {', '.join(known)}")
    return [p for p in points if p.name in names]
