"""Records of steps that resize. Strides are in bytes. A table lists the input lines of each output line."""

from bslite.kernels.contracts.cpu.shares import Shares
from bslite.kernels.contracts.record import Operand, StepRecord


class Resample(StepRecord, kernel="resample"):
    """Resizes one axis of a dense tensor: ``y[o, i] = sum of weight * x[o, line]`` over the ``taps`` of i.

    A line has ``inner`` cells; an axis has ``size`` lines in x and ``out`` in y. ``table`` holds, for each
    tap, the line and, in a cell, the weight. An item has ``item_lines`` of the ``lines`` of y.
    """

    x: Operand
    y: Operand
    table: Operand
    size: int
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
