"""Records of steps over windows of images, and over positions in images. Strides are in bytes."""

from typing import ClassVar

from bslite.kernels.contracts.cpu.epilogue import Affine, Epilogue
from bslite.kernels.contracts.cpu.shares import PlaneShares, Shares
from bslite.kernels.contracts.record import Four, Operand, Record, StepRecord, Three
from bslite.kernels.contracts.sampling import Beyond, Interpolation


class Windows(StepRecord):
    """Base of the records of pools. ``rows`` and ``cols`` are tables of each window's span, by output line
    and pixel: the first byte, the count, and its share of the divisor. ``x_row``: between rows of a window.
    """

    x: Operand
    y: Operand
    rows: Operand
    cols: Operand
    affine: Affine
    epilogue: Epilogue
    x_image: int
    x_row: int
    y_image: int
    y_line: int
    lines: int
    pixels: int
    channels: int


class Pool(Windows):
    """Pooling over images with channels innermost; an item is a band of output lines of some channels.

    ``x_pixel``: between columns of a window. ``plane_lines``: output lines of a plane of a volume. From
    ``run_first`` on, ``run_pixels`` windows of a line have ``run_wide`` columns, a distance of
    ``run_stride``, and one share of the divisor. They go in ``strips`` of ``strip`` pixels, all lines of a
    strip before the next: the rows that lines share are still in L1.
    """

    x_pixel: int
    y_plane: int
    y_pixel: int
    plane_lines: int
    shares: Shares
    run_first: int
    run_pixels: int
    run_wide: int
    run_stride: int
    strip: int
    strips: int


class MaxPool(Pool, kernel="max_pool"):
    """The largest element of each window."""


class AvgPool(Pool, kernel="avg_pool"):
    """The sum of each window divided by a divisor."""


class Planes(Windows):
    """Pooling over planes of contiguous pixels; an item is a band of output lines of some planes.

    The rows of a line's windows are reduced to one of ``width`` elements, with ``before`` neutral ones in
    front, in a ``line`` of scratch memory, `AT_ONCE` of them one after the other. There, windows of ``wide``
    elements, ``apart`` from each other, begin every ``stride``; if that is none of `STRIDES`, at the places
    in ``cols``.
    """

    STRIDES: ClassVar[tuple[int, ...]] = (1, 2, 3, 4)
    AT_ONCE: ClassVar[int] = 8

    x_channel: int
    y_channel: int
    shares: PlaneShares
    width: int
    before: int
    wide: int
    apart: int
    stride: int
    line: int


class MaxPlanes(Planes, kernel="max_planes"):
    """The largest element of each window."""


class AvgPlanes(Planes, kernel="avg_planes"):
    """The sum of each window divided by a divisor."""


class Taps(Record):
    """Windows along three axes: window w meets elements ``w * stride - before + tap * dilation`` of ``size``.

    There are ``windows`` windows of ``kernel`` taps along each axis.
    """

    size: Three
    windows: Three
    kernel: Three
    stride: Three
    before: Three
    dilation: Three


class MaxPoolPlaces(StepRecord, kernel="max_pool_places"):
    """The tap of the largest element of each window, as an integer; an item is a band of lines of windows.

    ``x`` and ``y``: strides of planes, lines and pixels.
    """

    x: Operand
    y: Operand
    x_image: int
    y_image: int
    x_step: Three
    y_step: Three
    taps: Taps
    lines: int
    channels: int
    cut: Shares


class PoolGrad(StepRecord, kernel="pool_grad"):
    """Sums of what windows hand to each element; an item is a band of lines of elements.

    With ``has_places`` a window hands g to the element under the tap of its place, else to all that it meets.
    ``g``, ``places`` and ``y``: strides of planes, lines and pixels.
    """

    g: Operand
    places: Operand
    y: Operand
    has_places: int
    g_image: int
    places_image: int
    y_image: int
    g_step: Three
    places_step: Three
    y_step: Three
    taps: Taps
    lines: int
    channels: int
    cut: Shares


class GridSample(StepRecord, kernel="grid_sample"):
    """Elements at the positions ``grid[points, axes]``, dense; an item has ``item_points`` of them.

    ``x``, ``y``: strides of images, planes, lines and pixels; channels are contiguous. ``depth``, ``height``
    and ``width`` are the input's sizes, ``planes``, ``lines`` and ``pixels`` the output's.
    """

    MOST_TAPS: ClassVar[int] = 16  # of a cubic image
    SCRATCH: ClassVar[int] = 4 * MOST_TAPS + 3 * 16  # elements: the taps, and the neighbours along each axis

    source: Operand
    grid: Operand
    target: Operand
    x: Four
    y: Four
    depth: int
    height: int
    width: int
    planes: int
    lines: int
    pixels: int
    channels: int
    points: int
    item_points: int
    axes: int
    mode: Interpolation
    padding: Beyond
    align: bool
