"""Records of steps that resize. Strides are in bytes. Which input lines make up an output line is a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bslite.kernels.contracts.cpu.shares import Shares
from bslite.kernels.contracts.record import Operand, StepRecord


@dataclass(frozen=True)
class Resample(StepRecord):
    """Along one axis, dense: ``y[o, i] = sum of weight * x[o, line]`` over the ``taps`` of i.

    Lines of ``inner`` cells, ``size`` in x and ``out`` in y. ``table``: for each tap the line and, in a cell,
    the weight. An item has ``item_lines`` of the ``lines`` of y.
    """

    kernel: ClassVar[str] = "resample"

    x: Operand
    y: Operand
    table: Operand
    size: int
    out: int
    inner: int
    taps: int
    lines: int
    item_lines: int


@dataclass(frozen=True)
class ResizeImage(StepRecord):
    """Images ``[N, H, W, C]`` along rows and columns at once; an item is a band of lines of some channels.

    ``rows``, ``cols``: a table of each, of what lies in x.
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


@dataclass(frozen=True)
class ResizeNearest(ResizeImage):
    """Each pixel is one of x; an entry of a table is an offset."""

    kernel: ClassVar[str] = "resize_nearest"


@dataclass(frozen=True)
class ResizeLinear(ResizeImage):
    """Each pixel is a sum of four; an entry of a table is two offsets and the weight of each, in cells."""

    kernel: ClassVar[str] = "resize_linear"
