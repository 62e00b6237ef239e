"""Where pixels of a layer on tiles lie, and the lines that they are cut into."""

import functools
from typing import NamedTuple

from bslite.kernels.contracts.cpu.tiles import ROWS
from bslite.kernels.contracts.record import Operand
from bslite.plan.core.views import View


class Pixels(NamedTuple):
    """Outputs as ``lines`` of each of ``planes`` of each of ``images``; the last line lacks ``short``."""

    images: int
    planes: int
    lines: int
    pixels: int
    short: int = 0

    @property
    def made(self) -> int:
        """The outputs."""
        return self.images * self.planes * (self.lines * self.pixels - self.short)


class Places(NamedTuple):
    """Where pixels lie: the first one of ``view``, and elements from image to image, plane to plane, line to
    line and pixel to pixel.
    """

    view: View
    start: Operand
    image: int
    plane: int
    line: int
    col: int


class Near(NamedTuple):
    """Elements between neighbours within a window: from plane to plane, row to row, pixel to pixel."""

    plane: int
    row: int
    col: int


def in_lines(
    threads: int, size: Pixels, places: list[Places], apart: bool = False
) -> tuple[Pixels, list[Places]]:
    """Outputs that each read one pixel: where they are evenly spaced, short lines, of which threads have even
    shares. ``apart``: of each image by itself.
    """
    images, planes, lines, pixels, _ = size
    if lines > 1 and all(m.line == pixels * m.col for m in places):
        pixels, lines = lines * pixels, 1
    if lines == 1 and planes > 1 and all(m.plane == pixels * m.col for m in places):
        pixels, planes = planes * pixels, 1
    if lines == planes == 1 and images > 1 and not apart and all(m.image == pixels * m.col for m in places):
        pixels, images = images * pixels, 1
    if lines > 1:
        return size, places
    length = _line(threads, pixels)
    cut = Pixels(images, planes, -(-pixels // length), length, -pixels % length)
    return cut, [m._replace(line=length * m.col) for m in places]


@functools.lru_cache(4096)
def _line(threads: int, pixels: int) -> int:
    """The pixels of a line: as many as tiles take at a time, or fewer, if the largest share of a thread then
    takes fewer tiles.
    """

    def share(length: int) -> int:
        """The tiles of the thread that has the most lines."""
        return -(-min(pixels, -(-pixels // (length * threads)) * length) // ROWS)

    if pixels <= 2 * ROWS:
        return 2 * ROWS
    return min(range(2 * ROWS, ROWS // 2, -1), key=share)
