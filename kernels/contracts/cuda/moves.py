"""Records of launches that move data. Strides are in elements."""

from typing import ClassVar

from bslite.kernels.contracts.launch import F4, I4, PAIRS, LaunchRecord, LaunchVariant, Threads
from bslite.kernels.contracts.record import Five, Six, Three


class CopyVariant(LaunchVariant):
    """The number of axes, and the threads of a block."""

    axes: int
    threads: int


class Copy(LaunchRecord, kernel="copy"):
    """``count`` cells from source to target. Axis 0 is innermost; ``n``: sizes of all axes but the outermost.

    ``x_start``, ``y_start``: the first element of each, from the lowest of its memory (strides may be
    negative).
    """

    AXES: ClassVar[int] = 6
    EACH: ClassVar[int] = 4  # elements per thread: as many loads are under way before the first is needed

    source: I4
    target: I4
    count: int
    x_start: int
    y_start: int
    n: Five
    x: Six
    y: Six


class CopyPairs(Copy, kernel="copy_pairs"):
    """The fields of `Copy` for pairs of neighbouring cells: sizes, starts and strides count pairs."""

    source: PAIRS
    target: PAIRS


class TransposeVariant(LaunchVariant):
    """The rows and columns of a block's tile."""

    tile: int


class Transpose(LaunchRecord, kernel="transpose"):
    """``y[.., r, c] = x[.., c, r]``: c is contiguous in x, r in y; ``across`` and ``down`` count tiles.

    Three outer axes surround them; the sizes of the inner two are ``n1`` and ``n2``.
    """

    source: I4
    target: I4
    rows: int
    cols: int
    x_row: int
    y_col: int
    across: int
    down: int
    n1: int
    n2: int
    x: Three
    y: Three


class TriluVariant(Threads):
    """The triangle that is kept: on and above the diagonal (``upper``), or on and below it."""

    upper: int


class Trilu(LaunchRecord, kernel="trilu"):
    """``count`` cells of dense matrices ``[height, width]``, with zeros outside the triangle."""

    x: I4
    y: I4
    count: int
    height: int
    width: int
    diagonal: int


class Fold(LaunchRecord, kernel="fold"):
    """``y[c, d, h, w]``, ``total`` elements, dense: the sum of ``x[c, planes[d, i] + lines[h, j] + pixels[w,
    k]]``; x has ``channel`` elements of each c.

    A line of a table has ``of_plane``, ``of_line`` or ``of_pixel`` offsets; unused ones are -1 and come last.
    """

    x: F4
    y: F4
    planes: I4
    lines: I4
    pixels: I4
    total: int
    depth: int
    height: int
    width: int
    of_plane: int
    of_line: int
    of_pixel: int
    channel: int
