"""While a panel is at work, the next one is fetched.

A layer's weights come from beyond the second cache, and with few pixels each panel is used but a few times.
The microkernel asks for two cache lines of the next panel every four steps of depth, among the multiply-adds,
so that it has arrived when its turn comes.
"""

from numba import njit

from benchmarks.ladder.engine_tile import on_the_image, tile
from benchmarks.ladder.problem import NR
from bslite.kernels.cpu.gemm.tile import UNROLL
from bslite.kernels.cpu.gemm.tiles import PREFETCHES


@njit(error_model="numpy")
def convolve_panel(
    number: int, kernel: int, rows: int, side: int, channels: int, n: int,
    x: int, offsets: int, b: int, c: int, end: int,
) -> None:  # fmt: skip
    """One panel of filters over every line; the panel after it is fetched meanwhile."""
    pixel, panel_bytes = 4 * channels, 4 * NR * 9 * channels
    panel = b + number * panel_bytes
    ahead, fetched = panel + panel_bytes, panel + 2 * panel_bytes
    share = 3 * (3 * channels // UNROLL) * PREFETCHES * 64  # what one tile fetches
    for line in range(side):
        for start in range(0, side, rows):
            i = min(start, side - rows)
            a, to = x + (line * (side + 2) + i) * pixel, c + 4 * ((line * side + i) * n + number * NR)
            tile(kernel, rows, a, pixel, offsets, 3, 3 * channels, panel, to, 4 * n, end, ahead)
            ahead += share
            if ahead >= fetched:  # all of it
                ahead, share = panel, 0


@njit(error_model="numpy")
def convolve(
    kernel: int, rows: int, side: int, channels: int, n: int, x: int, offsets: int, b: int, c: int, end: int
) -> None:
    """All panels in turn."""
    for number in range(n // NR):
        convolve_panel(number, kernel, rows, side, channels, n, x, offsets, b, c, end)


prepare = on_the_image(convolve)
