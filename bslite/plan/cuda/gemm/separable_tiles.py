"""The choice of tile, image strips and pixels per thread for `kernels.cuda.gemm.depthwise`, by price.

The price is that of other products (`gemm.tiles`) with these additions:

* **Issue and L1.** Each block computes its own elements of the depthwise result, so several tiles of columns
  repeat them. Four pixels of two channels take ``rows x columns`` reads of 8 bytes (neighbours' windows share
  columns) and 8 multiply-adds for every tap; a warp's read of 256 bytes takes L1 two cycles.
* **Turns.** A block reads, then multiplies; only other blocks on the SM fill the time it waits. It waits for
  each row of taps of each run of pixels that a thread computes.
* **Panels.** A tile of few, long lines reads several input lines for one; narrow strips read less.
"""

from dataclasses import dataclass

from bslite.explore.gpu import GpuMachine
from bslite.plan.cuda.gemm.tiles import (
    FETCH_LATENCY,
    LOOP,
    MOVED,
    QUAD,
    SLICE,
    SM_BLOCKS,
    SM_REGISTERS,
    SM_SHARED,
    SM_THREADS,
    START,
    Problem,
    TileShape,
    choose_way,
    tiles,
)
from bslite.plan.cuda.tuning import DEFAULT, Tuning

DEEP = 32  # channels per turn (`kernels.cuda.gemm.depthwise.DEEP`)
CELL = 2
ROW_LATENCY = 65.0  # cycles from requesting a row of a window to having it, from L1 or L2
# Slots of a read of 8 bytes with its address, of a read in a window at an edge on top of that, of a row of
# taps, of a run of pixels, of the place of a row in y: as counted in machine code for sm_90, times 5.4, which
# is what 72 launches of MobileNet v2 take on an H100 (19 % off in the mean): nothing hides their waits.
READ, TESTED, TAP_ROW, RUN, PLACE = 16.0, 51.0, 27.0, 350.0, 458.0


@dataclass(frozen=True)
class Separable:
    """A depthwise filter over ``images x lines x width`` pixels of ``terms`` channels, then a product with
    ``cols`` columns. ``memory_bytes`` is the least traffic with HBM; ``function`` is the issue slots of the
    activation between the two.
    """

    images: int
    lines: int
    width: int
    terms: int
    cols: int
    taps: tuple[int, int]
    step: tuple[int, int]
    memory_bytes: int
    function: float

    @property
    def rows(self) -> int:
        """The rows of the product."""
        return self.images * self.lines * self.width

    @property
    def product(self) -> Problem:
        """The pointwise convolution by itself."""
        return Problem(self.rows, self.cols, self.terms, 1, CELL, self.memory_bytes)


@dataclass(frozen=True)
class SeparableChoice:
    """A tile, the width of strips, a thread's run of pixels, the parts of each sum of ``chunk`` terms."""

    tile: TileShape
    strip: int
    run: int
    parts: int
    chunk: int
    seconds: float
    panel: float  # bytes that a block reads


def choose_separable(p: Separable, machine: GpuMachine, tuning: Tuning = DEFAULT) -> SeparableChoice | None:
    """Return the cheapest choice, of equals what reads least; None if the machine's blocks are too small."""
    way = choose_way(p.product, machine, tuning)
    found = [
        _price(p, tile, strip, way.parts, machine)
        for tile in tiles(machine, tuning)
        if tile.tensor == way.tensor
        for strip in range(1, p.width + 1)
        if p.width % strip == 0 and (strip <= tile.rows or strip == p.width)
    ]
    return min(found, key=lambda c: (c.seconds, c.panel)) if found else None


def _price(
    p: Separable, tile: TileShape, strip: int, parts: int, machine: GpuMachine
) -> SeparableChoice:  # fmt: skip
    run = next(n for n in (4, 2, 1) if strip % n == 0)
    slices = -(-p.terms // SLICE)
    chunk = -(-slices // parts)
    parts = -(-slices // chunk)
    blocks = -(-p.rows // tile.rows) * -(-p.cols // tile.cols) * parts
    here = -(-blocks // machine.sms)
    (tall, wide), (down, across) = p.taps, p.step
    # Per slice: a warp computes four pixels of 32 pairs of channels, so one warp serves 32 rows.
    reach = (run - 1) * across + wide
    edges = min(1.0, (wide - 1) / (across * p.width) * run + (tall - 1) / (down * p.lines))
    runs = QUAD // run
    reads = runs * tall * (reach * (READ + edges * TESTED) + wide * READ + TAP_ROW)
    adds = 2 * QUAD * tall * wide + 2 * QUAD * p.function
    warps = tile.rows / 32
    made = warps * (reads + adds + runs * RUN)
    l1 = warps * runs * tall * (2.0 * reach + wide)
    products = tile.products + LOOP / 2
    products += SLICE * tile.cols / CELL / tile.threads * MOVED
    issue = (max(1.0, tile.threads / 32) * products + made) / (machine.lanes / 32)
    busy_slice = max(issue, l1)
    turn = DEEP // SLICE
    # One block alone: rows of taps one after the other, then weights, then products.
    in_turn = tile.rows / QUAD / (tile.threads * CELL / DEEP) * runs * tall
    wait = in_turn * ROW_LATENCY + FETCH_LATENCY + turn * issue

    scattered = strip < p.width
    store = scattered * tile.threads / 32 * tile.thread_rows * PLACE / run / (machine.lanes / 32)

    def together(count: int) -> float:
        """Return the cycles of ``count`` blocks side by side on an SM."""
        return START + count * store + chunk * max(count * busy_slice, wait / turn) if count else 0.0

    waves, rest = divmod(here, resident(tile))
    busy = (waves * together(resident(tile)) + together(rest)) / machine.clock
    lines = tile.rows / strip
    seen = ((lines - 1) * down + tall) * ((strip - 1) * across + wide) if lines >= 1 else tile.rows * tall
    panel = 4 * SLICE * chunk * (min(seen, tile.rows * tall * wide) + tile.cols)
    l2 = blocks * panel / machine.l2_bandwidth
    port = here * panel / (machine.sm_bytes_per_cycle * machine.clock)
    seconds = max(busy, l2, port, p.memory_bytes / machine.memory_bandwidth) + machine.launch
    if parts > 1:
        seconds += machine.launch + 2 * parts * 4 * p.rows * p.cols / machine.l2_bandwidth
    return SeparableChoice(tile, strip, run, parts, SLICE * chunk, seconds, panel)


def resident(tile: TileShape) -> int:
    """Return how many blocks an SM holds at once."""
    shared = 4 * DEEP * (tile.rows + tile.cols + 2 * QUAD) + 8 * tile.rows + 1024
    by_threads, by_registers = (
        SM_THREADS // tile.threads,
        SM_REGISTERS // (max(128, tile.registers) * tile.threads),
    )
    return min(SM_BLOCKS, by_threads, by_registers, SM_SHARED // shared)
