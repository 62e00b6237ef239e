"""The engine's microkernel, kernels/cpu/gemm/tile.py, with nothing in its epilogue, for steps 7 to 10."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import register_jitable

from benchmarks.ladder.problem import NR, WIDTH, Call, Problem, aligned, by_address
from bslite.kernels.cpu.gemm.sweep import call_gemm_sweep, gemm_sweep
from bslite.kernels.cpu.vector import target
from bslite.kernels.cpu.vector.simd import LANES
from bslite.plan.cpu.tiling import TALLEST
from bslite.spec import Array


def most_rows() -> int:
    """Rows of the largest tile: accumulators, the registers of B and one for A fit the register file."""
    return min(TALLEST, (target.simd().registers - WIDTH - 1) // WIDTH)


def microkernel() -> int:
    """Address of the compiled function: tiles of 1 to `most_rows` rows by `WIDTH` registers."""
    return int(gemm_sweep(WIDTH, most_rows()).address)


def epilogue() -> Array:
    """A bias of zeros, and bounds that clamp nothing, each in a cell of 8 bytes."""
    cells = aligned(NR + 4)
    cells[NR], cells[NR + 2] = -np.inf, np.inf
    return cells


def on_the_image(convolve: Callable[..., None]) -> Callable[[Problem, int], Call]:
    """The ``prepare`` of a step whose ``convolve`` works on image and panels, by a table of offsets."""

    def prepare(p: Problem, threads: int) -> Call:
        sizes = (microkernel(), min(most_rows(), p.side), p.side, p.channels, p.filters)
        return by_address(convolve, sizes, (p.image, p.offsets, p.panels), p.result(), epilogue())

    return prepare


@register_jitable
def tile(
    kernel: int, rows: int, a: int, a_row: int, offsets: int, taps: int, depth: int, b: int,
    c: int, c_row: int, end: int, ahead: Any,
) -> None:  # fmt: skip
    """``c[rows, NR] = sum_t a_t[rows, depth] @ b_t[depth, NR]``, a_t at ``a + offsets[t]``.

    Addresses and strides in bytes; ``end``: an `epilogue`; ``ahead``: where to prefetch while computing.
    """
    call_gemm_sweep(
        kernel,
        rows,
        1,
        a,
        a_row,
        offsets,
        taps,
        depth,
        b,
        c,
        c_row,
        end,
        0,
        0,
        0,
        end + 4 * NR,
        LANES,
        ahead,
        0,
        1,
        0,
        0,
        0,
    )
