"""The parts and the order of a sum over filter taps and channels.

They are a pure function of the filter's size (where columns are left out, of the image's width, too), not of
tiling, batch, threads or memory layout. So a layer's answer has the same bits however it is planned, and an
image's answer does not depend on its neighbours.
"""

from typing import NamedTuple

from bslite.machine import Machine
from bslite.plan.core.windows import Axis
from bslite.plan.cpu.tiling import across_rows

LONGEST = 1024  # terms of one running sum at most; more are summed in parts, for accuracy and for the cache
#: The same of convolutions on cells of two numbers: a term is two products.
LONGEST_OF_CELLS = LONGEST // 2
#: The same of linear layers: networks of these are deep, and shorter parts take no longer there.
LONGEST_OF_ROWS = 512
#: The same of linear layers with at most ``FEW`` outputs, which others sum along their terms, a part in each
#: lane. An output alone, a score or a class, shows how it was rounded; the layer's time is next to none.
LONGEST_OF_FEW, FEW = 64, 16

ADD_UP = 10.0  # multiply-adds in whose time the lanes of a register are added up
SPARED, PART = 0.03, 8.0  # share of the taps that must be spared, and terms that storing a part costs
PLANE = 128  # terms of a plane, from which on no sum is of several planes


class Reduction(NamedTuple):
    """``offsets`` (elements) of the taps, ``depth`` contiguous terms each, ``chunk_taps`` to a sum."""

    offsets: tuple[int, ...]
    depth: int
    chunk_taps: int

    @property
    def size(self) -> int:
        """The number of terms."""
        return len(self.offsets) * self.depth


def reduction(
    r: int, s: int, c: int, line: int, col: int, contiguous: bool, planes: int = 1, plane: int = 0,
    by_tap: bool = False, longest: int = LONGEST,
) -> Reduction:  # fmt: skip
    """The sum over an ``r`` x ``s`` window of ``c`` channels, taps ``line`` and ``col`` elements apart; in a
    volume, over ``planes`` planes, ``plane`` apart.

    ``contiguous``: a filter row's ``s * c`` values lie one after the other, and may be taken as one tap.
    ``by_tap``: no sum is of several taps. Unless a plane has few terms, none is of several planes either.
    ``longest``: terms of a running sum at most.
    """
    rows = _rows(r, line, planes, plane)
    if by_tap:
        parts = _parts(c, longest) if c > longest else 1
        offsets = [row + j * col + p * (c // parts) for row in rows for j in range(s) for p in range(parts)]
        return Reduction(tuple(offsets), c // parts, 1)
    if in_planes(r, s, c, planes):
        places, depth, chunk = reduction(r, s, c, line, col, contiguous, longest=longest)
        row = len(places) // r  # whole rows to a sum, whether a row is one tap or several
        chunk = _divisor(r, chunk // row) * row if chunk % row == 0 else _divisor(r * row, chunk)
        return Reduction(tuple(k * plane + p for k in range(planes) for p in places), depth, chunk)
    if c > longest:
        parts = _parts(c, longest)
        offsets = [row + j * col + p * (c // parts) for row in rows for j in range(s) for p in range(parts)]
        return Reduction(tuple(offsets), c // parts, max(1, longest // (c // parts)))
    if s * c > longest:
        taps = tuple(row + j * col for row in rows for j in range(s))
        return Reduction(taps, c, _equal(len(rows) * s, longest // c))
    chunk = _equal(len(rows), longest // (s * c))
    if contiguous:
        return Reduction(tuple(rows), s * c, chunk)
    return Reduction(tuple(row + j * col for row in rows for j in range(s)), c, chunk * s)


def in_planes(r: int, s: int, c: int, planes: int) -> bool:
    """Whether the terms of each plane of a filter are summed apart: rows in planes may be left out, then."""
    return planes > 1 and r > 1 and r * s * c >= PLANE


def leaves_out_columns(cols: Axis, depth: int) -> bool:
    """Whether taps are summed one by one, each for the pixels that have a column of the image there: where
    wide windows reach far beyond its sides. Parts of a sum are stored and loaded once more for that.
    """
    inside = 0
    for tap in range(cols.taps):
        first = cols.start + tap * cols.dilation
        low, high = -(-max(0, -first) // cols.stride), -(-max(0, cols.have - first) // cols.stride)
        inside += max(0, min(cols.made, high) - min(cols.made, low))
    return cols.taps > 1 < cols.dilation and 1 - inside / (cols.taps * cols.made) > SPARED + PART / depth


def _rows(r: int, line: int, planes: int, plane: int) -> list[int]:
    """Where the filter's rows begin, plane by plane."""
    return [k * plane + i * line for k in range(planes) for i in range(r)]


def sums_across(machine: Machine, outputs: int, depth: int, taps: int = 1) -> bool:
    """Whether lanes run along the sums of a layer of so few outputs that these would leave most of the lanes
    of a panel empty: sums over ``taps`` of ``depth`` terms side by side. The size of the weights alone says
    so.

    A register of terms then takes a multiply-add and some loads for each output; adding up its lanes takes
    some operations for each result.
    """
    blocks = taps * -(-depth // machine.lanes)
    worth = 0 < blocks <= LONGEST and outputs * (1.3 * blocks + ADD_UP) <= 0.7 * taps * depth
    return worth and across_rows(machine, outputs) > 0


def reduction_across(
    r: int, s: int, c: int, line: int, col: int, planes: int = 1, plane: int = 0
) -> Reduction:
    """As `reduction`, where each lane sums every so many terms: in one part."""
    offsets = tuple(row + j * col for row in _rows(r, line, planes, plane) for j in range(s))
    return Reduction(offsets, c, len(offsets))


def reduction_of_rows(c: int, outputs: int, across: bool = False) -> Reduction:
    """The sum over the ``c`` features of a row, for so many outputs; ``across``: as `reduction_across`."""
    if across:
        return reduction_across(1, 1, c, 0, 0)
    longest = LONGEST_OF_FEW if outputs <= FEW else LONGEST_OF_ROWS
    parts = _parts(c, longest) if c > longest else 1
    if parts == 1:
        return reduction(1, 1, c, 0, 0, True)
    return Reduction(tuple(range(0, c, c // parts)), c // parts, max(1, longest // (c // parts)))


def _equal(count: int, most: int) -> int:
    """The size of the parts when ``count`` is divided evenly into the fewest parts of at most ``most``."""
    return -(-count // -(-count // most))


def _divisor(count: int, most: int) -> int:
    """The largest divisor that is at most ``most``."""
    return next(size for size in range(min(count, most), 0, -1) if count % size == 0)


def _parts(c: int, longest: int) -> int:
    """The number of equal parts to cut ``c`` channels into; 1 where the parts would be too small."""
    for parts in range(-(-c // longest), 8 * c // longest + 1):
        if c % parts == 0:
            return parts
    return 1
