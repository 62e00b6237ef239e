"""The tile of registers again, but of vector registers, and explicit ones.

A `Vec` (kernels/cpu/vector/simd.py) is one whole register as a Numba value: ``<16 x float>`` on AVX-512,
where the compiler's own vectoriser would take half of it. Six rows by two registers: 8 loads for 12 multiply-
adds of 16 lanes.
"""

from numba import njit

from benchmarks.ladder.problem import NR, Call, Problem, by_address
from benchmarks.ladder.vector_tile import ROWS, tile


@njit(error_model="numpy")
def multiply(m: int, n: int, depth: int, a: int, b: int, c: int) -> None:
    """``c[m, n] = a[m, depth] @ b[depth, n]``, at these addresses, ``m`` at least 6."""
    for j in range(0, n, NR):
        for start in range(0, m, ROWS):
            i = min(start, m - ROWS)
            tile(a + 4 * i * depth, 4 * depth, depth, b + 4 * j, 4 * n, c + 4 * (i * n + j), 4 * n)


def prepare(p: Problem, threads: int) -> Call:
    """A call that computes the problem."""
    return by_address(multiply, (p.pixels, p.filters, p.depth), (p.columns, p.weights), p.result())
