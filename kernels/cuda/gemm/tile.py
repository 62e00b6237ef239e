"""The register tile of the GPU's batch-reduce GEMM: a block's memory layout, and the code of its inner loop
by multiply-adds; `tensor.py` has that of tensor cores, whose slices lie otherwise.

A block computes ``C [BM, BN]``, each thread ``TM x TN`` of it in registers, over the whole sum. Slices of
``DEPTH`` terms of A and B pass through shared memory, terms outermost: ``[DEPTH][BM + PAD]``, so that a
thread's operands are runs of four, read 16 bytes at a time. There are two such slices: while one is
multiplied, the next is on its way from memory in registers, and one barrier per slice is enough.

* **Arithmetic.** A thread of 8x8 does 512 multiply-adds for 32 reads of 16 bytes (PTX: ``ld.shared.v4``) and
  141 other instructions, 166 where windows move (machine code for sm_90, pairs, 128x64): the multiply-add
  units, one warp instruction per cycle and scheduler, are at most 75 or 72 % busy. Shared memory gives 128
  bytes a cycle: a warp reads 64 bytes of A (four rows of threads, broadcast) and 128 of B (eight columns of
  threads, side by side) per 16-byte read, so it is busy at most half of that time. If every quarter of a warp
  were a pass of its own, broadcast or not, it would be as busy as the multiply-adds; this is not measured.
* **Bank conflicts.** There are none, as the PTX that tests run counts them. Reads are as above; rows start on
  16 bytes since PAD is 4. A warp writes DEPTH terms of a few rows of A; terms are ``BM + 4`` floats apart,
  which is 4 modulo 16, so 8 lanes along the terms (single floats) or 4 lanes along every second term (pairs)
  times the rows beside each other are 32 banks.
* **Global memory.** A row's DEPTH floats are 32 bytes, one sector: any layout uses all bytes of a fetched
  sector.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from bslite.kernels.cuda.runtime.device import device_function

DEPTH = 8  # terms of a slice: as floats, one sector of memory
PAD = 4  # floats between the terms of a slice, on top of the tile's size
QUAD = 4  # floats of a 16-byte access
REGISTERS = 65536  # of an SM


class Tile(NamedTuple):
    """The rows and columns of a block's tile, and of a thread's; multiples of four, on tensor cores of two.

    A thread's rows are runs of ``row_run`` that begin ``row_gap`` apart, and so are its columns.
    ``tensor``: products are made on tensor cores (`tensor`).
    """

    rows: int
    cols: int
    thread_rows: int
    thread_cols: int
    tensor: int = 0

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return self.rows // self.thread_rows * (self.cols // self.thread_cols)

    @property
    def row_run(self) -> int:
        """The rows of a thread that are side by side."""
        return 1 if self.tensor else QUAD

    @property
    def col_run(self) -> int:
        """The columns of a thread that are side by side."""
        return 2 if self.tensor else QUAD

    @property
    def row_gap(self) -> int:
        """The rows from one run of a thread's rows to the next."""
        return 8 if self.tensor else self.rows * QUAD // self.thread_rows

    @property
    def col_gap(self) -> int:
        """The columns from one run of a thread's columns to the next."""
        return 8 if self.tensor else self.cols * QUAD // self.thread_cols

    @property
    def steps_a(self) -> tuple[int, int]:
        """The distances between terms, and between rows, of a slice of A in shared memory."""
        return (1, DEPTH) if self.tensor else (self.rows + PAD, 1)

    @property
    def steps_b(self) -> tuple[int, int]:
        """The distances between terms, and between columns, of a slice of B."""
        return (1, DEPTH) if self.tensor else (self.cols + PAD, 1)

    @property
    def slices(self) -> tuple[int, int]:
        """The floats of a slice of A, and of B."""
        pad = 0 if self.tensor else PAD
        return DEPTH * (self.rows + pad), DEPTH * (self.cols + pad)

    @property
    def scratch(self) -> tuple[int, int]:
        """The registers for operands of A, and of B, while a slice is multiplied."""
        if self.tensor:
            return max(8, self.thread_rows), 2 * self.thread_cols
        return self.thread_rows, self.thread_cols

    @property
    def rows_of_mma(self) -> int:
        """The instructions below each other that make a warp's sums."""
        return self.thread_rows // 2

    @property
    def cols_of_mma(self) -> int:
        """The instructions side by side that make a warp's sums."""
        return self.thread_cols // 2


def bounds(variant: Mapping[str, Any]) -> tuple[int, int]:
    """Return the threads of a block of this variant, and how many such blocks an SM has registers for.

    128 registers to a thread: 16 warps hide each other's latencies. Tensor cores, where each instruction
    waits for the one before, go faster by 168 and 12 warps (H100, a tile of 128x64: 48 TFLOP/s for
    39).
    """
    tile = Tile(*variant["tile"], variant["tensor"])
    if not tile.tensor:
        return 256, 2
    each = 168 if tile.threads == 128 and tile.thread_rows * tile.thread_cols >= 48 else 128
    return tile.threads, REGISTERS // (each * tile.threads)


def unrolled(count: int, body: Callable[..., None]) -> Callable[..., None]:
    """Return a device function that calls ``body(0, *args)``, ``body(1, *args)``, ... ``body(count - 1,
    *args)``.

    The calls are written out in full, whatever LLVM thinks of their size: an array of registers whose index
    is not a constant would lie in memory instead.
    """
    if count == 1:
        return body
    half = count // 2
    if count % 2 == 0:
        low = high = unrolled(half, body)
    else:
        low, high = unrolled(half, body), unrolled(count - half, body)

    @device_function
    def run(first, *args):
        low(first, *args)
        high(first + half, *args)

    return run


def placement(tile: Tile) -> Callable[[Any], tuple[Any, Any, Any, Any]]:
    """Return a device function that gives a thread's first row and column of the tile's sums, and the first
    cells of a slice of A and of B that it reads.

    A warp is 8 threads wide and 4 high where the tile is wide enough.
    """
    across = tile.cols // tile.thread_cols
    wide = min(across, 8)
    high = 32 // wide
    warps = across // wide

    @device_function
    def place(t):
        warp, lane = t // 32, t % 32
        row = ((warp // warps) * high + lane // wide) * QUAD
        col = ((warp % warps) * wide + lane % wide) * QUAD
        return row, col, row, col

    return place


def products(tile: Tile) -> Callable[..., None]:
    """Return the device function ``(first=0, acc, fa, fb, shared, a_at, b_at)``: ``acc += a^T b`` of a slice.

    ``acc [TM * TN]``, ``fa [TM]`` and ``fb [TN]`` are registers; ``shared[a_at]`` is the thread's first row
    of the slice of A, ``shared[b_at]`` its first column of that of B. Both are uint32: Numba then adds the
    constant part of an index in 64 bits, and LLVM sees that four floats lie side by side.

    Where tensor cores multiply, this is what is done again for numbers that they cannot take: the first
    argument is the number of terms, and nothing is written out, which would take registers from the rest.
    """
    tm, tn = tile.thread_rows, tile.thread_cols
    row_run, col_run = tile.row_run, tile.col_run
    row_runs, col_runs = tm // row_run, tn // col_run
    row_gap, col_gap = tile.row_gap, tile.col_gap
    (a_step, row_step), (b_step, col_step) = tile.steps_a, tile.steps_b

    @device_function
    def term(k, acc, fa, fb, shared, a_at, b_at):
        for q in range(row_runs):
            for e in range(row_run):
                fa[q * row_run + e] = shared[a_at + np.uint32(k * a_step + (q * row_gap + e) * row_step)]
        for q in range(col_runs):
            for e in range(col_run):
                fb[q * col_run + e] = shared[b_at + np.uint32(k * b_step + (q * col_gap + e) * col_step)]
        for i in range(tm):
            for j in range(tn):
                acc[i * tn + j] += fa[i] * fb[j]

    if not tile.tensor:
        return unrolled(DEPTH, term)

    @device_function
    def some_terms(count, acc, fa, fb, shared, a_at, b_at):
        for k in range(count):
            term(k, acc, fa, fb, shared, a_at, b_at)

    return some_terms
