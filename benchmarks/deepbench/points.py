"""DeepBench's recurrent layers for serving (`bslite.explore.deepbench`), and the steps they are run for."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import output
from bslite.explore.deepbench import server_list
from bslite.explore.problem import Recurrent

SERVER = server_list((1,))
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

    def problem(self, batch: int) -> Recurrent:
        """As `bslite.explore` takes it: as many inputs as units."""
        return Recurrent(self.cell, self.hidden, self.hidden, self.steps, batch)

    @property
    def weight_bytes(self) -> int:
        """Of the recurrent weights, ``[gates * hidden, hidden]``; those of the inputs are as many."""
        return self.problem(1).recurrent_weight_bytes

    @property
    def streamed(self) -> int:
        """Bytes that calls read again and again: the recurrent weights; with one step, all weights."""
        return self.weight_bytes * (2 if self.steps == 1 else 1)

    @property
    def cut(self) -> bool:
        """Whether it is shorter than in the list."""
        return self.lengths != (self.steps,)


def cut_points(cap: int) -> list[Point]:
    """The list with sequences cut to ``cap`` steps, except for layers of few weights.

    Entries that are the same then are one point: a step of a long sequence costs as much as any other.
    """
    found: dict[tuple[str, int, int], list[int]] = {}
    for entry in SERVER:
        steps = entry.steps if entry.recurrent_weight_bytes <= SHORT else min(entry.steps, cap)
        found.setdefault((entry.kind, entry.hidden, steps), []).append(entry.steps)
    return [Point(*point, tuple(lengths)) for point, lengths in found.items()]


def chosen(names: Sequence[str], points: Sequence[Point]) -> list[Point]:
    """Those of the names, as `Point.name` has them; ValueError for one that is not in the list."""
    known = dict.fromkeys(p.name for p in points)
    if wrong := [n for n in names if n not in known]:
        raise ValueError(f"no such layer: {', '.join(wrong)}; there are {', '.join(known)}")
    return [p for p in points if p.name in names]


def add_options(parser: argparse.ArgumentParser, batches: Sequence[int], capped: str) -> None:
    """``--layers``, ``--batch``, ``--steps-cap`` and ``--seed``."""
    default = " ".join(map(str, batches))
    parser.add_argument("--layers", nargs="+", metavar="LAYER", help='of the list, such as "lstm 512"')
    parser.add_argument("--batch", nargs="+", type=int, default=list(batches), help=f"(default: {default})")
    parser.add_argument("--steps-cap", type=int, metavar="N", help=capped)
    parser.add_argument("--seed", type=int, default=0, help="of weights and input")


def parse(
    parser: argparse.ArgumentParser, arguments: list[str] | None, quick_cap: int, cap: int
) -> tuple[argparse.Namespace, list[Point]]:
    """The options, with those of `output.add_options`, and the points that they choose."""
    output.add_options(parser)
    options = parser.parse_args(arguments)
    options.steps_cap = options.steps_cap or (quick_cap if options.quick else cap)
    points = cut_points(options.steps_cap)
    try:
        return options, chosen(options.layers, points) if options.layers else points
    except ValueError as e:
        parser.error(f"--layers: {e}")
