"""The choice of a GEMM's tile and of the number of parts its sums are cut into, by price.

The price of a launch is the longest of four things that overlap:

* **Issue.** A warp's slice of 8 terms is ``8*TM*TN`` multiply-adds, ``2*(TM + TN)`` reads of shared memory
  and the instructions that move the next slice; an SM issues ``lanes/32`` warp instructions a cycle. Larger
  tiles have the better share of multiply-adds: 8x8 per thread about 80 %, 8x4 70 %, 4x4 55 %.
* **Latency.** A slice is requested while the one before is multiplied, so a block cannot go faster than one
  slice per trip to memory; several blocks on an SM overlap their trips.
* **Panels.** Every block reads its panel of A and of B: ``4*(BM + BN)`` bytes per term, from L2, through the
  port of one SM. A tile of 128x128 has 32 multiply-adds per byte; an SM performs 128 of them per cycle and
  reads 64 bytes.
* **Memory.** HBM moves input, weights, output and residual once.

Blocks run in waves of as many as all SMs hold; the last wave may be thin, which is where smaller tiles win.
Where even those leave SMs idle (few pixels, long sums), the sum is cut into parts, which a second launch adds
in a fixed order. The number of parts belongs to the plan, so the bits of an answer depend on nothing else. It
is chosen for the bare product: a prologue or an epilogue in the same launch leaves the bits as they are.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from bslite.arithmetic import Precision
from bslite.explore.gpu import GpuMachine
from bslite.plan.cuda.tuning import DEFAULT, Tuning

SLICE = 8  # terms that pass through shared memory at once (`kernels.cuda.gemm.tile.DEPTH`)
QUAD = 4
SM_THREADS, SM_REGISTERS, SM_BLOCKS, SM_SHARED = 2048, 65536, 32, 200 << 10
# Fitted to 500 launches on an H100 (14 % off in the mean), waits that nothing hides included.
FETCH_LATENCY = 710.0  # cycles from requesting a slice to having it in shared memory
MOVED = 66.0  # slots per cell that a thread moves from memory to shared memory
LOOP = 58.0  # other slots per slice
START = 1820.0  # cycles before the first product and after the last, together
MMA = 3.75  # slots of an instruction of the tensor cores, with its share of splits and additions
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
LEAST_TENSOR = 32  # terms of a sum on tensor cores, at least: of fewer, multiply-adds make smaller errors
LEAST_TERMS = 64  # a part's terms, at least
MOST_CELLS = 4  # a thread's cells of A in a slice, at most, that a prologue has registers for


@dataclass(frozen=True)
class TileShape:
    """The tile of a block and of a thread, as in `kernels.cuda.gemm.tile.Tile`, and a thread's registers."""

    rows: int
    cols: int
    thread_rows: int
    thread_cols: int
    registers: int
    tensor: int = 0  # whether products are three of TF32 on tensor cores

    @property
    def constants(self) -> tuple[int, int, int, int]:
        """The constants that the kernel is compiled with."""
        return self.rows, self.cols, self.thread_rows, self.thread_cols

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.rows // self.thread_rows * (self.cols // self.thread_cols)

    def cells(self, cell: int) -> int:
        """Return how many cells of A a thread moves in a slice."""
        return SLICE * self.rows // cell // self.threads

    def takes(self, cell: int) -> bool:
        """Return whether a thread has registers for the cells that it moves: of single floats, more."""
        return not self.tensor or cell == 2 or self.thread_rows * self.thread_cols <= 16

    @property
    def resident(self) -> int:
        """The number of blocks that an SM holds at once."""
        shared = 2 * SLICE * 4 * (self.rows + self.cols + 2 * QUAD) + 1024
        by_threads, by_registers = SM_THREADS // self.threads, SM_REGISTERS // (self.registers * self.threads)
        return min(SM_BLOCKS, by_threads, by_registers, SM_SHARED // shared)

    def issue(self, lanes: int, cell: int, before: float = 0.0) -> float:
        """Return the cycles an SM takes to issue one slice of a block; ``before``: slots of a prologue per
        cell of A.
        """
        moved = SLICE * ((self.rows + self.cols) * MOVED + self.rows * before) / cell / self.threads
        return max(1.0, self.threads / 32) * (self.products + moved + LOOP) / (lanes / 32)

    @property
    def products(self) -> float:
        """The slots of a warp's products of a slice, with the reads of its operands."""
        if self.tensor:
            return 3 * self.thread_rows * self.thread_cols / 4 * MMA
        products = SLICE * self.thread_rows * self.thread_cols
        return products + SLICE * (self.thread_rows + self.thread_cols) / QUAD


TILES = (
    TileShape(128, 128, 8, 8, 128),
    TileShape(128, 64, 8, 8, 128),
    TileShape(64, 128, 8, 8, 128),
    TileShape(64, 64, 8, 4, 112),
    TileShape(128, 32, 8, 4, 112),
    TileShape(128, 16, 8, 4, 112),
    TileShape(32, 64, 4, 4, 96),
    TileShape(16, 64, 4, 4, 96),
    TileShape(32, 32, 4, 4, 96),
    TileShape(32, 16, 4, 4, 96),
)
TENSOR_TILES = (
    TileShape(96, 64, 6, 8, 168, 1),
    TileShape(64, 64, 8, 4, 128, 1),
    TileShape(128, 32, 8, 4, 128, 1),
    TileShape(32, 64, 4, 4, 112, 1),
    TileShape(32, 32, 4, 4, 112, 1),
    TileShape(32, 16, 4, 4, 112, 1),
)


@dataclass(frozen=True)
class Problem:
    """``batch`` products of ``rows x terms`` by ``terms x cols``; ``cell`` floats are moved at once.

    ``memory_bytes``: the least traffic with HBM. ``before``: issue slots of a prologue for each cell of A.
    """

    rows: int
    cols: int
    terms: int
    batch: int
    cell: int
    memory_bytes: int
    before: float = 0.0

    @property
    def bare(self) -> "Problem":
        """The product without its operands' layout and without prologue or epilogue."""
        cell = 1 if self.cols % 2 or self.terms % 2 else 2
        made = self.rows * self.cols + self.cols * self.terms
        return replace(self, cell=cell, memory_bytes=4 * self.batch * made, before=0.0)


class Way(NamedTuple):
    """The arithmetic of a product: all that its bits depend on (beside NaN and infinities the tile, too)."""

    tensor: int
    parts: int


@dataclass(frozen=True)
class Choice:
    """A tile, the parts of each sum with ``chunk`` terms each, and the predicted seconds."""

    tile: TileShape
    parts: int
    chunk: int
    seconds: float


def price(p: Problem, tile: TileShape, parts: int, machine: GpuMachine) -> Choice:
    """Return the choice of ``tile`` with sums in at most ``parts`` parts, and its price."""
    slices = -(-p.terms // SLICE)
    chunk = -(-slices // parts)
    parts = max(1, -(-slices // max(1, chunk)))
    blocks = -(-p.rows // tile.rows) * -(-p.cols // tile.cols) * p.batch * parts
    here = -(-blocks // machine.sms)  # blocks of the busiest SM
    issue = tile.issue(machine.lanes, p.cell, p.before)

    def together(count: int) -> float:
        """Return the cycles of ``count`` blocks side by side on an SM."""
        return START + chunk * max(count * issue, FETCH_LATENCY) if count else 0.0

    waves, rest = divmod(here, tile.resident)
    busy = (waves * together(tile.resident) + together(rest)) / machine.clock
    panel = 4 * SLICE * chunk * (tile.rows + tile.cols)
    l2 = blocks * panel / machine.l2_bandwidth
    port = here * panel / (machine.sm_bytes_per_cycle * machine.clock)
    seconds = max(busy, l2, port, p.memory_bytes / machine.memory_bandwidth) + machine.launch
    if parts > 1:
        made = 4 * p.rows * p.cols * p.batch
        seconds += machine.launch + 2 * parts * made / machine.l2_bandwidth
    return Choice(tile, parts, SLICE * chunk, seconds)


def choose_way(p: Problem, machine: GpuMachine, tuning: Tuning = DEFAULT) -> Way:
    """Return how the bare product is cheapest: by which instructions, and with how many parts of each sum."""
    counts = [parts for parts in PARTS if parts <= max(1, p.terms // LEAST_TERMS)]
    if tuning.parts is not None:
        counts = [tuning.parts(p.terms)]
    bare = p.bare
    found = [tile for tile in tiles(machine, tuning) if tile.takes(bare.cell)]
    if p.terms < LEAST_TENSOR:
        found = [tile for tile in found if not tile.tensor]
    choices = [price(bare, tile, n, machine) for tile in found for n in counts]
    best = min(choices, key=_seconds)
    return Way(best.tile.tensor, best.parts if tuning.parts is None else counts[0])


def choose(p: Problem, machine: GpuMachine, tuning: Tuning = DEFAULT) -> Choice:
    """Return the cheapest tile for the way of the bare product; of equals the first."""
    way = choose_way(p, machine, tuning)
    found = [tile for tile in tiles(machine, tuning) if tile.tensor == way.tensor and tile.takes(p.cell)]
    if p.before:
        found = [tile for tile in found if tile.cells(p.cell) <= MOST_CELLS] or found
    return min((price(p, tile, way.parts, machine) for tile in found), key=_seconds)


def tiles(machine: GpuMachine, tuning: Tuning = DEFAULT) -> list[TileShape]:
    """Return the tiles whose blocks fit the machine; those for tensor cores where it gains by them and the
    user accepts them.
    """
    tensor = machine.tensor_lanes > 3 * machine.lanes and tuning.precision is not Precision.IEEE
    found = TILES + TENSOR_TILES if tensor else TILES
    return [tile for tile in found if tile.threads <= machine.block_threads]


def _seconds(choice: Choice) -> float:
    return choice.seconds


FEW = 8  # rows of a product that `kernels.cuda.gemm.gemv` takes, at most
GROUP_THREADS = 128
IN_FLIGHT = 1024  # threads per SM that keep memory busy


@dataclass(frozen=True)
class GroupChoice:
    """The division of a product of few rows among the threads of `kernels.cuda.gemm.gemv`."""

    rows: int  # a compile-time constant: the next power of two
    outputs: int
    across: int
    threads: int
    parts: int
    chunk: int


def choose_groups(p: Problem, machine: GpuMachine) -> GroupChoice:
    """Return the group that reads at the rate of memory: threads of one block that share the sums of four
    outputs (H100, 4096 x 4096: 2.6 TB/s; 1.8 where 64 threads share one output's).

    Few outputs are spread over all SMs first. Sums are cut into parts to fill SMs that would still be idle.
    """
    rows = 1 << max(0, p.rows - 1).bit_length()
    cells = -(-p.terms // p.cell)
    outputs = 4 if rows <= 4 else 2
    while outputs > 1 and p.cols < outputs * machine.sms:
        outputs //= 2
    groups = -(-p.cols // outputs)
    threads = GROUP_THREADS
    if groups * 2 * threads <= machine.sms * IN_FLIGHT and cells >= 8 * threads:
        threads *= 2
    threads = min(threads, machine.block_threads)
    across = min(threads, 1 << max(0, cells - 1).bit_length())  # short sums leave no lane idle
    wanted, there = machine.sms * IN_FLIGHT, groups * across
    parts = max(1, min(cells // (across * 8), wanted // there)) if 2 * there <= wanted else 1
    chunk = -(-cells // parts) * p.cell
    return GroupChoice(rows, outputs, across, threads, -(-p.terms // max(1, chunk)) or 1, chunk)
