"""Launches: a program, a grid, arguments, and the memory that it may touch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from support.ptx import loop
from support.ptx.text import Program, PtxError, bits_of

Counts = npt.NDArray[np.int64]
TURN = 2000  # steps backwards before it is another's turn
#: Turns of all blocks without an end.
MOST_TURNS = 100_000

WRONG = {
    loop.OUTSIDE: "is outside of every array",
    loop.MISALIGNED: "is not on a multiple of its width",
    loop.UNWRITTEN: "reads shared memory that nobody wrote",
    loop.SHARED_RACE: "races with thread {other} for shared memory",
    loop.GLOBAL_RACE: "races for memory (the other's mark: {other:#x})",
    loop.BARRIER: "waits at a barrier while others wait at instruction {other}",
    loop.SHUFFLE: "exchanges with thread {other}, which is not there",
}


class Region(NamedTuple):
    """Memory that a kernel may touch: of ``size`` bytes, the 4-byte cells whose number, counted from
    ``origin``, modulo ``period`` is in ``[first, last)``.
    """

    address: int
    size: int
    writable: bool = True
    origin: int = 0
    period: int = 1
    first: int = 0
    last: int = 1


@dataclass
class Counted:
    """What launches did, per instruction: warps and threads that executed it, passes over shared memory,
    sectors of 32 bytes of memory.
    """

    program: Program
    warps: Counts = field(init=False)
    threads: Counts = field(init=False)
    waves: Counts = field(init=False)
    sectors: Counts = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.program.lines)
        self.warps, self.threads, self.waves, self.sectors = (np.zeros(count, np.int64) for _ in range(4))

    @property
    def passes(self) -> tuple[int, int]:
        """Over shared memory: those there were, and the fewest there could be, were all threads to take part:
        more is banks in conflict.
        """
        fewest = 0
        for line, warps in zip(self.program.lines, self.warps, strict=True):
            what = _bare(line).split()[0]
            if ".shared" in what:
                size = (8 if "64" in what else 4) * (4 if ".v4" in what else 2 if ".v2" in what else 1)
                fewest += int(warps) * (size * loop.WARP // 128)
        return int(self.waves.sum()), fewest

    def of(self, prefix: str, counts: Counts) -> int:
        """Sum over the instructions that begin so."""
        chosen = [i for i, line in enumerate(self.program.lines) if _bare(line).startswith(prefix)]
        return int(counts[chosen].sum())


def _bare(line: str) -> str:
    return line.partition(" ")[2] if line.startswith("@") else line


def launch(
    program: Program,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arguments: Sequence[int | float],
    regions: Sequence[Region],
    *,
    together: bool = False,
    dynamic_shared: int = 0,
    seed: int | None = None,
) -> Counted:
    """Run a kernel over a grid. ``arguments`` in the order of its parameters. ``together``: all blocks are
    there at once (a cooperative launch), else one after another. ``seed`` shuffles blocks and warps.

    Raises PtxError for what hardware leaves undefined, with the instruction and the thread.
    """
    counted = Counted(program)
    chance = np.random.default_rng(seed) if seed is not None else None
    memory = _memory(regions)
    const = np.frombuffer(program.memory or b"\0" * 8, np.uint8).copy()
    # Those that are there at once, one list after the other.
    order = _order(int(np.prod(grid)), chance)
    for numbers in [order] if together else order[:, None]:
        going = [_Block(program, grid, block, arguments, int(n), dynamic_shared, chance) for n in numbers]
        for _ in range(MOST_TURNS):
            going = [one for one in going if not one.run(memory, const, counted)]
            if not going:
                break
        else:
            raise PtxError(f"the code of blocks {[one.number for one in going]} does not end")
    return counted


def _order(count: int, chance: np.random.Generator | None) -> Counts:
    return np.arange(count) if chance is None else chance.permutation(count)


def _memory(regions: Sequence[Region]) -> tuple[Counts, ...]:
    """Regions, where the marks of each begin, and the marks: who wrote a cell, who read it. Regions that
    overlap share theirs.
    """
    merged: list[list[int]] = []
    for r in sorted(regions):
        if merged and r.address <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], r.address + r.size)
        else:
            merged.append([r.address, r.address + r.size])
    starts = np.cumsum([0] + [(high - low) // 4 + 2 for low, high in merged])
    shadows = []
    for r in regions:
        k = max(i for i, (low, _) in enumerate(merged) if low <= r.address)
        shadows.append(int(starts[k]) + (r.address - merged[k][0]) // 4)
    writer, reader = (np.full(starts[-1], -1, np.int64) for _ in range(2))
    return np.array(regions, np.int64).reshape(-1, 7), np.array(shadows, np.int64), writer, reader


class _Block:
    """A block's registers, shared memory and places in the code."""

    def __init__(
        self,
        program: Program,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[int | float],
        number: int,
        dynamic_shared: int,
        chance: np.random.Generator | None,
    ) -> None:
        threads = int(np.prod(block))
        warps = -(-threads // loop.WARP)
        self.program, self.number, self.rows = program, number, len(program.rows)
        self.file = np.zeros((warps * self.rows + 1, loop.WARP), np.uint64)
        file = self.file[:-1].reshape(warps, self.rows, loop.WARP)
        for row, bits in program.constants.items():
            file[:, row] = bits
        if len(arguments) != len(program.parameters):
            raise PtxError(f"{len(arguments)} arguments for {len(program.parameters)} parameters")
        for name, size, value in zip(program.parameters, program.sizes, arguments, strict=True):
            file[:, program.rows[name]] = bits_of(value, size)
        thread = np.arange(warps * loop.WARP).reshape(warps, loop.WARP)
        here = (number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1]))
        tid = (thread % block[0], thread // block[0] % block[1], thread // (block[0] * block[1]))
        for axis, letter in enumerate("xyz"):
            file[:, program.rows[f"%tid.{letter}"]] = tid[axis]
            file[:, program.rows[f"%ntid.{letter}"]] = block[axis]
            file[:, program.rows[f"%ctaid.{letter}"]] = here[axis]
            file[:, program.rows[f"%nctaid.{letter}"]] = grid[axis]
        self.places = np.zeros((warps, loop.WARP), np.int64)
        self.states = np.where(thread < threads, 0, 3).astype(np.int8)
        self.shared = np.full(max(1, -(-(program.shared + dynamic_shared) // 16)) * 4, np.nan, np.float32)
        self.shared_size = program.shared + dynamic_shared
        self.written = np.zeros(self.shared.size, np.int8)
        self.writer, self.reader = (np.zeros(self.shared.size, np.int64) for _ in range(2))
        self.now = np.zeros(3, np.int64)
        self.order = _order(warps, chance)

    def run(self, memory: tuple[Counts, ...], const: Any, counted: Counted) -> bool:
        """A turn; whether all threads are done."""
        info = np.zeros(4, np.int64)
        flat = self.file.reshape(-1)
        kinds = (np.uint64, np.int64, np.float64, np.uint32, np.int32, np.float32)
        ended = loop.run(
            self.program.instructions, *(flat.view(kind) for kind in kinds), self.rows, self.places,
            self.states, self.shared.ctypes.data, self.shared_size, self.written, self.writer, self.reader,
            const.ctypes.data, const.size, *memory, self.number, self.order, TURN, self.now,
            counted.warps, counted.threads, counted.waves, counted.sectors, info,
        )  # fmt: skip
        if ended in (loop.DONE, loop.TURN):
            return bool(ended == loop.DONE)
        at, thread, address, other = map(int, info)
        raise PtxError(
            f"{self.program.lines[at]!r} (instruction {at}) of block {self.number}, thread {thread}, address "
            f"{address:#x} {WRONG[ended].format(other=other)}"
        )
