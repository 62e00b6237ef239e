"""No im2col: the sum goes over the image itself, by a table of offsets (arXiv 1906.06440).

A window is three lines of three pixels, and the three pixels of a line lie on end. So the sum of a tile
is three products, each starting elsewhere in the padded image, all added up in the same registers. The
matrix that is nine times as large as the image need not be made (which was not counted above) nor read.
"""

from numba import njit

from benchmarks.ladder.engine_tile import on_the_image, tile
from benchmarks.ladder.problem import NR


@njit(error_model="numpy")
def convolve(
    kernel: int, rows: int, side: int, channels: int, n: int, x: int, offsets: int, b: int, c: int, end: int
) -> None:
    """Every panel of filters over every line of the image ``[side + 2, side + 2, channels]``."""
    pixel = 4 * channels
    for j in range(0, n, NR):
        panel = b + 4 * j * 9 * channels
        for line in range(side):
            for start in range(0, side, rows):
                i = min(start, side - rows)
                a, to = x + (line * (side + 2) + i) * pixel, c + 4 * ((line * side + i) * n + j)
                tile(kernel, rows, a, pixel, offsets, 3, 3 * channels, panel, to, 4 * n, end, panel)


prepare = on_the_image(convolve)
