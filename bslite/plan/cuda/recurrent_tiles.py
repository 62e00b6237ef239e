"""How a recurrent layer is cut into blocks of threads: units of a block by the search over the GPU's model
(`bslite.explore.gpu`), warps along and across the rows of its weights by counting instructions.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

from bslite.explore.gpu import AHEAD, CHIP, GRID, LAUNCH, STREAMED, GpuMachine, estimate, space
from bslite.explore.problem import Recurrent
from bslite.explore.space import Point

WARPS, LANES = 8, 32
NARROW, WIDE = 48, 128  # weights of a thread, in registers, of the kernels "recurrent" and "recurrent_wide"
SHARED = 46 << 10  # bytes of h and of partial sums
SEQUENCES = 16  # of a block at most
DEEP = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 64, 96, 128)  # columns of a lane
STAGED = 2048  # values of h that a block waits for at once: 8 reads under way for each thread


class Tile(NamedTuple):
    """Constants of `kernels.cuda.recurrent`, as far as they follow from sizes."""

    warps: int
    lanes: int
    parts: int
    rows: int
    deep: int
    batch: int
    chunk: int

    @property
    def kernel(self) -> str:
        """Which of the two has room for the weights."""
        return "recurrent" if self.rows * self.deep <= NARROW else "recurrent_wide"

    @property
    def instructions(self) -> float:
        """Of a thread for one sequence: multiply-adds, loads of h, folding."""
        levels = (self.lanes // self.rows).bit_length() - 1
        return self.rows * self.deep + self.deep + 2 * (self.rows - 1 + levels)


class Loops(NamedTuple):
    """Hidden units of a block, and whether one launch does all time steps."""

    units: int
    stays: bool
    tile: Tile


def kept(machine: GpuMachine) -> int:
    """Weights that a thread can keep there."""
    return WIDE if machine.register_bytes >= 4 * WIDE * WARPS * LANES else NARROW


def tile(machine: GpuMachine, gates: int, depth: int, units: int, batch: int) -> Tile | None:
    """The cheapest way to take ``gates * units`` sums of ``depth`` terms, for ``batch`` sequences; None if
    there is none.
    """
    small = machine.block_threads < WARPS * LANES  # the simulator's machine, where it is folding that costs
    lanes = 2 if small else LANES
    warps = machine.block_threads // lanes if small else WARPS
    found = []
    sequences = 1
    while sequences < min(batch, SEQUENCES):
        sequences *= 2
    if units * sequences > warps * lanes:
        return None
    for parts, rows, deep in itertools.product((1, 2, 4, 8, 16), (1, 2, 4, 8, 16, 32), DEEP):
        longest = parts * lanes * deep
        if parts > warps or rows > lanes or longest < depth or warps // parts * rows < gates * units:
            continue
        if rows * deep > kept(machine) and not small:
            continue
        chunk = sequences
        while chunk > 1 and longest * chunk > STAGED:
            chunk //= 2
        if 4 * (2 * chunk * longest + warps * rows * sequences) <= SHARED:
            found.append(Tile(warps, lanes, parts, rows, deep, sequences, chunk))
    return min(found, key=lambda t: (t.instructions, t), default=None)


@functools.lru_cache(maxsize=256)
def choose(problem: Recurrent, machine: GpuMachine) -> Loops | None:
    """The cheapest point of the space that the kernel can do: weights kept by blocks that stay, or read by a
    launch per step; products with inputs ahead. None if h is too long for the kernel.
    """
    points = space(problem, machine)
    best: tuple[float, Loops] | None = None
    for units in range(1, min(problem.hidden, WARPS * LANES) + 1):
        cut = tile(machine, problem.gates, problem.hidden, units, problem.batch)
        if cut is None:
            continue
        for weights, steps in ((CHIP, GRID), (STREAMED, LAUNCH)):
            blocks = -(-problem.hidden // units) * -(-problem.batch // cut.batch)
            if steps == GRID and blocks > machine.sms:
                continue
            point = Point((("units", units), ("weights", weights), ("steps", steps), ("inputs", AHEAD)))
            if points.violation(point) is not None:
                continue
            seconds = estimate(problem, machine, point).seconds
            if best is None or seconds < best[0]:
                best = seconds, Loops(units, steps == GRID, cut)
    return best[1] if best else None


def launched(machine: GpuMachine, gates: int, units: int, depth: int, batch: int) -> Loops | None:
    """Units of a block of a pass that is launched for itself: the fewest instructions of the busiest SM."""
    best: tuple[float, Loops] | None = None
    for own in range(1, min(units, WARPS * LANES) + 1):
        cut = tile(machine, gates, depth, own, batch)
        if cut is not None:
            turns = -(-(-(-units // own) * -(-batch // cut.batch)) // machine.sms)
            price = turns * (cut.instructions * cut.batch + 1000)
            if best is None or price < best[0]:
                best = price, Loops(own, False, cut)
    return best[1] if best else None
