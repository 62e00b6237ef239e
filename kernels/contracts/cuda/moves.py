"""Records of launches that move data. Strides are in elements."""

from dataclasses import dataclass
from typing import ClassVar

from bslite.kernels.contracts.launch import F4, I4, PAIRS, LaunchRecord, LaunchVariant

Five = tuple[int, int, int, int, int]
Six = tuple[int, int, int, int, int, int]
Three = tuple[int, int, int]


@dataclass(frozen=True)
class CopyVariant(LaunchVariant):
    """The number of axes, and the threads of a block."""

    axes: int
    threads: int


@dataclass(frozen=True)
class Copy(LaunchRecord):
    """``count`` cells from source to target. Axis 0 is innermost; ``n``: sizes of all axes but the outermost.

    ``x_start``, ``y_start``: the first element of each, from the lowest of its memory (strides may be
    negative).
    """

    kernel: ClassVar[str] = "copy"
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


@dataclass(frozen=True)
class CopyPairs(Copy):
    """The fields of `Copy` for pairs of neighbouring cells: sizes, starts and strides count pairs."""

    kernel: ClassVar[str] = "copy_pairs"

    source: PAIRS
    target: PAIRS


@dataclass(frozen=True)
class TransposeVariant(LaunchVariant):
    """The rows and columns of a block's tile."""

    tile: int


@dataclass(frozen=True)
class Transpose(LaunchRecord):
    """``y[.., r, c] = x[.., c, r]``: c is contiguous in x, r in y; ``across`` and ``down`` count tiles.

    Three outer axes surround them; the sizes of the inner two are ``n1`` and ``n2``.
    """

    kernel: ClassVar[str] = "transpose"

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


@dataclass(frozen=True)
class TriluVariant(LaunchVariant):
    """The triangle that is kept: on and above the diagonal (``upper``), or on and below it."""

    threads: int
    upper: int


@dataclass(frozen=True)
class Trilu(LaunchRecord):
    """``count`` cells of dense matrices ``[height, width]``, with zeros outside the triangle."""

    kernel: ClassVar[str] = "trilu"

    x: I4
    y: I4
    count: int
    height: int
    width: int
    diagonal: int


@dataclass(frozen=True)
class BlockVariant(LaunchVariant):
    """The threads of a block."""

    threads: int


@dataclass(frozen=True)
class Fold(LaunchRecord):
    """``y[c, d, h, w]``, ``total`` elements, dense: the sum of ``x[c, planes[d, i] + lines[h, j] + pixels[w,
    k]]``; x has ``channel`` elements of each c.

    A line of a table has ``of_plane``, ``of_line`` or ``of_pixel`` offsets; unused ones are -1 and come last.
    """

    kernel: ClassVar[str] = "fold"

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
