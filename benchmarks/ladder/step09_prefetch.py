"""While a panel is at work, the next one is fetched: the engine's own microkernel.

A layer's weights come from beyond the second cache, and each panel is used once. `gemm_tile` asks for two
cache lines of the next panel every four steps of depth, among the multiply-adds, so that it has arrived
when its turn comes. The same microkernel starts from the bias and adds residual and activation in the
store (here: none).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from benchmarks.ladder.emitted_tile import most_rows
from benchmarks.ladder.problem import NR, WIDTH, Problem, address, aligned
from bslite.kernels.cpu.gemm_tile import PREFETCHES, UNROLL
from bslite.kernels.cpu.simd import LANES
from bslite.kernels.cpu.sweep import call_gemm_sweep, gemm_sweep
from bslite.spec import Array


@njit(error_model="numpy")
def convolve_panel(
    panel: int, side: int, channels: int, n: int, rows: int, sweep: int,
    x: int, offsets: int, b: int, c: int, bias: int, clamp: int,
) -> None:  # fmt: skip
    """One panel of filters over every line; the panel after it is fetched meanwhile."""
    pixel, panel_bytes = 4 * channels, 4 * NR * 9 * channels
    b += panel * panel_bytes
    c += 4 * panel * NR
    ahead, fetched = b + panel_bytes, b + 2 * panel_bytes
    share = 3 * (3 * channels // UNROLL) * PREFETCHES * 64  # what one tile fetches
    for line in range(side):
        for start in range(0, side, rows):
            i = min(start, side - rows)
            call_gemm_sweep(
                sweep, rows, 1, x + (line * (side + 2) + i) * pixel, pixel, offsets, 3, 3 * channels, b,
                c + 4 * (line * side + i) * n, 4 * n, bias, 0, 0, 0, clamp, LANES, ahead, share,
            )  # fmt: skip
            ahead += share
            if ahead >= fetched:
                ahead, share = b, 0


@njit(error_model="numpy")
def convolve(
    side: int, channels: int, n: int, rows: int, sweep: int,
    x: int, offsets: int, b: int, c: int, bias: int, clamp: int,
) -> None:  # fmt: skip
    """All panels in turn."""
    for panel in range(n // NR):
        convolve_panel(panel, side, channels, n, rows, sweep, x, offsets, b, c, bias, clamp)


def operands(p: Problem, c: Array) -> tuple[list[int], list[Any]]:
    """The arguments of `convolve`, and the arrays they point into."""
    rows = min(most_rows(), p.side)
    bias = aligned(NR)
    clamp = np.zeros(4, np.float32)  # two bounds, each in a cell of 8 bytes
    clamp[0], clamp[2] = -np.inf, np.inf
    keep = [p.image, p.offsets, p.panels, c, bias, clamp]
    sweep = gemm_sweep(WIDTH, most_rows()).address
    return [p.side, p.channels, p.filters, rows, sweep, *map(address, keep)], keep


def prepare(p: Problem, threads: int) -> Callable[[], Array]:
    """A call that computes the problem."""
    c = p.result()
    arguments, keep = operands(p, c)

    def call() -> Array:
        assert keep
        convolve(*arguments)
        return c

    return call
