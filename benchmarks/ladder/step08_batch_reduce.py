"""No im2col: the sum goes over the image itself, by a table of offsets (arXiv 1906.06440).

A window is three lines of three pixels, and the three pixels of a line lie on end. So the sum of a tile
is three products, each starting elsewhere in the padded image, all added up in the same registers. The
matrix that is nine times as large as the image need not be made (which was not counted above) nor read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from benchmarks.ladder.emitted_tile import emitted_tile, most_rows
from benchmarks.ladder.problem import NR, Problem, address
from bslite.spec import Array


def convolver(rows: int) -> Any:
    """``convolve`` with tiles of so many pixels of a line."""
    tile = emitted_tile(rows)

    @njit(error_model="numpy")
    def convolve(side: int, channels: int, n: int, x: int, offsets: int, b: int, c: int) -> None:
        """Every panel of filters over every line of the image ``[side + 2, side + 2, channels]``."""
        pixel = 4 * channels
        for j in range(0, n, NR):
            for line in range(side):
                for start in range(0, side, rows):
                    i = min(start, side - rows)
                    tile(
                        x + (line * (side + 2) + i) * pixel, pixel, offsets, 3, 3 * channels,
                        b + 4 * j * 9 * channels, c + 4 * ((line * side + i) * n + j), 4 * n,
                    )  # fmt: skip

    return convolve


def prepare(p: Problem, threads: int) -> Callable[[], Array]:
    """A call that computes the problem."""
    x, offsets, b, c = p.image, p.offsets, p.panels, p.result()
    convolve = convolver(min(most_rows(), p.side))

    def call() -> Array:
        convolve(p.side, p.channels, p.filters, address(x), address(offsets), address(b), address(c))
        return c

    return call
