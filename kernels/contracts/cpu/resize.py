"""Records of steps that resize. Strides are in bytes. A table lists the input lines of each output line."""

from bslite.kernels.contracts.cpu.shares import PlaneShares, Shares
from bslite.kernels.contracts.record import Operand, StepRecord


class Resample(StepRecord, kernel="resample"):
    """Resizes one axis of a tensor: ``y[o, i] = sum of weight * x[o, line]`` over the ``taps`` of i.

    A line has ``inner`` cells; an axis has ``out`` lines in y. ``x_image`` and ``y_image`` lie between
    neighbouring o, ``y_line`` between lines. ``table`` holds, for each tap, the byte offset of its line in x
    and, in a cell, the weight. An item has ``item_lines`` of the ``lines`` of y.
    """

    x: Operand
    y: Operand
    table: Operand
    x_image: int
    y_image: int
    y_line: int
    out: int
    inner: int
    taps: int
    lines: int
    item_lines: int


class ResizeImage(StepRecord):
    """Resizes both axes of images ``[N, H, W, C]``; an item is a band of lines of some channels.

    ``rows``, ``cols``: one table each for the rows and columns that lie in x.
    """

    x: Operand
    y: Operand
    rows: Operand
    cols: Operand
    x_image: int
    y_image: int
    y_line: int
    y_pixel: int
    lines: int
    pixels: int
    channels: int
    shares: Shares


class ResizeNearest(ResizeImage, kernel="resize_nearest"):
    """Nearest resizing: each pixel is one of x; an entry of a table is an offset."""


class ResizeLinear(ResizeImage, kernel="resize_linear"):
    """Linear resizing: sums of four pixels; a table's entry is two offsets and their weights, in cells."""


class ResizePlanes(StepRecord, kernel="resize_planes"):
    """Resizes both axes of planes of contiguous pixels; an item is a band of output lines of some planes.

    The ``row_taps`` rows of an output line are mixed in ``picks`` registers of input pixels, of which each of
    a register of neighbouring output pixels is made. ``rows`` holds an offset and a weight, in a cell, for
    each tap. ``cols`` holds for each register of output pixels: for each of ``col_taps``, the lane of each of
    the ``picks`` registers that an output pixel picks, or a negative number, and a register of weights; then
    the offsets of these registers, in cells of 8 bytes, filled up to whole registers.
    """

    x: Operand
    y: Operand
    rows: Operand
    cols: Operand
    x_image: int
    x_channel: int
    y_image: int
    y_channel: int
    y_line: int
    channels: int
    shares: PlaneShares
    width: int
    lines: int
    pixels: int
    row_taps: int
    col_taps: int
    picks: int
