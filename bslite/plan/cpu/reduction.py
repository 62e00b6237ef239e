"""How a sum over filter taps and channels is taken: in which parts, in which order.

A pure function of the filter's size. Tiling, batch, threads and memory layout have no say in it, so a layer's
answer has the same bits however it is planned, and an image's answer does not depend on its neighbours.
"""

from __future__ import annotations

from typing import NamedTuple

LONGEST = (
    1024  # terms of one running sum: beyond, parts are summed on their own, for accuracy and for the cache
)


class Reduction(NamedTuple):
    """``offsets`` (elements) of the taps, ``depth`` contiguous terms each, ``chunk_taps`` to a sum."""

    offsets: tuple[int, ...]
    depth: int
    chunk_taps: int

    @property
    def size(self) -> int:
        """Terms in all."""
        return len(self.offsets) * self.depth


def reduction(
    r: int, s: int, c: int, line: int, col: int, contiguous: bool, planes: int = 1, plane: int = 0
) -> Reduction:
    """The sum over an ``r`` x ``s`` window of ``c`` channels, taps ``line`` and ``col`` elements apart; of a
    volume, over ``planes`` of them, ``plane`` apart.

    ``contiguous``: a filter row's ``s * c`` values lie one after the other, and may be taken as one tap.
    """
    rows = [k * plane + i * line for k in range(planes) for i in range(r)]
    if c > LONGEST:
        parts = _parts(c)
        offsets = [row + j * col + p * (c // parts) for row in rows for j in range(s) for p in range(parts)]
        return Reduction(tuple(offsets), c // parts, max(1, LONGEST // (c // parts)))
    if s * c > LONGEST:
        taps = tuple(row + j * col for row in rows for j in range(s))
        return Reduction(taps, c, _equal(len(rows) * s, LONGEST // c))
    chunk = _equal(len(rows), LONGEST // (s * c))
    if contiguous:
        return Reduction(tuple(rows), s * c, chunk)
    return Reduction(tuple(row + j * col for row in rows for j in range(s)), c, chunk * s)


def _equal(count: int, most: int) -> int:
    """Size of the parts when ``count`` is shared out evenly over the fewest of at most ``most``."""
    return -(-count // -(-count // most))


def _parts(c: int) -> int:
    """Into how many equal parts to cut ``c`` channels; 1 where there are no parts of a decent size."""
    for parts in range(-(-c // LONGEST), 8 * c // LONGEST + 1):
        if c % parts == 0:
            return parts
    return 1
