"""B packed once into panels, so that the tile reads it front to back.

Two registers of a line of B, then two of the next line, a kilobyte further on: always other cache lines, and
every four lines another page. Weights don't change, so they are laid out beforehand as the tile wants them.
"""

from numba import njit

from benchmarks.ladder.problem import NR, Call, Problem, by_address
from benchmarks.ladder.vector_tile import ROWS, tile


@njit(error_model="numpy")
def multiply(m: int, n: int, depth: int, a: int, b: int, c: int) -> None:
    """``c[m, n] = a[m, depth] @ b``, b in panels ``[n / NR][depth][NR]``."""
    for j in range(0, n, NR):
        for start in range(0, m, ROWS):
            i = min(start, m - ROWS)
            tile(a + 4 * i * depth, 4 * depth, depth, b + 4 * j * depth, 4 * NR, c + 4 * (i * n + j), 4 * n)


def prepare(p: Problem, threads: int) -> Call:
    """A call that computes the problem."""
    return by_address(multiply, (p.pixels, p.filters, p.depth), (p.columns, p.panels), p.result())
