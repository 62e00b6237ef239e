"""The largest tile that fits the register file, its instructions emitted by a program.

Two multiply-adds a cycle, each four cycles long, need eight accumulators; more of them save loads. 14 x 2
of the 32 registers of AVX-512 take 16 loads for 28 multiply-adds. Nobody wants to write that out: a
Python loop emits LLVM's IR, for whatever number of rows the machine has registers for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from benchmarks.ladder.emitted_tile import emitted_tile, most_rows
from benchmarks.ladder.problem import NR, Problem, address
from bslite.spec import Array


def multiplier(rows: int) -> Any:
    """``multiply`` with tiles of so many rows."""
    tile = emitted_tile(rows)

    @njit(error_model="numpy")
    def multiply(m: int, n: int, depth: int, a: int, b: int, c: int, zero: int) -> None:
        """``c[m, n] = a[m, depth] @ b``, b in panels; at ``zero`` is an offset of 0."""
        for j in range(0, n, NR):
            for start in range(0, m, rows):
                i = min(start, m - rows)
                tile(
                    a + 4 * i * depth,
                    4 * depth,
                    zero,
                    1,
                    depth,
                    b + 4 * j * depth,
                    c + 4 * (i * n + j),
                    4 * n,
                )

    return multiply


def prepare(p: Problem, threads: int) -> Callable[[], Array]:
    """A call that computes the problem."""
    a, b, c, zero = p.columns, p.panels, p.result(), np.zeros(1, np.int64)
    multiply = multiplier(min(most_rows(), p.pixels))

    def call() -> Array:
        multiply(p.pixels, p.filters, p.depth, address(a), address(b), address(c), address(zero))
        return c

    return call
