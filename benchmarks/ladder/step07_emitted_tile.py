"""The largest tile that fits the register file, its instructions emitted by a program.

Two multiply-adds a cycle, each four cycles long, need eight accumulators; more of them save loads. 14 x 2 of
the 32 registers of AVX-512 take 16 loads for 28 multiply-adds. Nobody wants to write that out: a Python loop
emits LLVM's IR, for whatever number of rows the machine has registers for.
"""

import numpy as np
from numba import njit

from benchmarks.ladder.engine_tile import epilogue, microkernel, most_rows, tile
from benchmarks.ladder.problem import NR, Call, Problem, by_address


@njit(error_model="numpy")
def multiply(
    kernel: int, rows: int, m: int, n: int, depth: int, a: int, b: int, c: int, zero: int, end: int
) -> None:
    """``c[m, n] = a[m, depth] @ b``, b in panels; at ``zero`` is an offset of 0."""
    for j in range(0, n, NR):
        panel = b + 4 * j * depth
        for start in range(0, m, rows):
            i = min(start, m - rows)
            to = c + 4 * (i * n + j)
            # What is "prefetched" is the panel at hand: nothing that would not be there anyway.
            tile(kernel, rows, a + 4 * i * depth, 4 * depth, zero, 1, depth, panel, to, 4 * n, end, panel)


def prepare(p: Problem, threads: int) -> Call:
    """A call that computes the problem."""
    sizes = (microkernel(), min(most_rows(), p.pixels), p.pixels, p.filters, p.depth)
    operands = (p.columns, p.panels)
    return by_address(multiply, sizes, operands, p.result(), np.zeros(1, np.int64), epilogue())
