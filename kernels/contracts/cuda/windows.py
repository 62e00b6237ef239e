"""Records of launches over windows of images, and over positions in them. Strides are in elements."""

from bslite.kernels.contracts.launch import F4, I4, I8, LaunchRecord, LaunchVariant, Threads
from bslite.kernels.contracts.record import Record
from bslite.kernels.contracts.sampling import Beyond, Interpolation


class Places(Record):
    """The strides of images, planes, rows, columns and channels of x and y."""

    x_image: I8
    x_plane: int
    x_row: int
    x_col: int
    x_channel: int
    y_image: I8
    y_plane: int
    y_row: int
    y_col: int
    y_channel: int


class PoolVariant(LaunchVariant):
    """The ``largest`` element or the mean, then an ``affine`` per channel and an activation."""

    largest: int
    affine: int
    activation: str
    threads: int


class Pool(LaunchRecord, kernel="pool"):
    """``count`` elements of y ``[images, planes, rows, cols, channels]``, each from a window of x.

    ``spans``: the extent of windows by planes, then rows, then columns: first element, count, share of the
    divisor. ``down``, ``tall``, ``wide``: elements of x between the planes, rows and columns of a window.
    ``a``, ``b``: parameters of the activation.
    """

    x: F4
    y: F4
    spans: I4
    scale: F4
    shift: F4
    count: int
    channels: int
    planes: int
    rows: int
    cols: int
    places: Places
    down: int
    tall: int
    wide: int
    a: float
    b: float


class WholePoolVariant(LaunchVariant):
    """The options of `PoolVariant`; a block takes ``lanes`` channels, ``sharing`` threads each."""

    largest: int
    affine: int
    activation: str
    lanes: int
    sharing: int


class WholePool(LaunchRecord, kernel="whole_pool"):
    """One window over all ``pixels`` of each image, ``x_pixel`` apart; ``groups`` blocks for the channels."""

    x: F4
    y: F4
    scale: F4
    shift: F4
    pixels: int
    channels: int
    groups: int
    x_image: I8
    x_pixel: int
    x_channel: int
    y_image: I8
    y_channel: int
    a: float
    b: float


class DepthwiseVariant(LaunchVariant):
    """Return whether there is a bias, the activation, and the threads of a block."""

    biased: int
    activation: str
    threads: int


class Depthwise(LaunchRecord, kernel="depthwise"):
    """A filter ``w[taps, channels]`` for each channel; ``each`` of them read one channel of x.

    ``count`` elements of y ``[images, planes, rows, cols, channels]``. By axis: sizes of x (``in_``), taps,
    padding (``front``, ``top``, ``left``), stride, dilation (``apart_``).
    """

    x: F4
    y: F4
    w: F4
    bias: F4
    count: int
    channels: int
    each: int
    planes: int
    rows: int
    cols: int
    in_planes: int
    in_rows: int
    in_cols: int
    taps_planes: int
    taps_rows: int
    taps_cols: int
    front: int
    top: int
    left: int
    stride_planes: int
    stride_rows: int
    stride_cols: int
    apart_planes: int
    apart_rows: int
    apart_cols: int
    places: Places
    a: float
    b: float


class GridSampleVariant(Threads):
    """``across`` threads take a position's channels side by side; ``axes``: axes of the grid."""

    across: int
    axes: int
    mode: Interpolation
    padding: Beyond
    align: int


class GridSample(LaunchRecord, kernel="grid_sample"):
    """Samples at the dense positions ``grid[points, axes]``; channels are contiguous.

    ``depth``, ``height`` and ``width`` are the input's, ``planes``, ``lines`` and ``pixels`` the output's.
    ``x``, ``y``: strides of images, planes, lines and pixels.
    """

    source: F4
    grid: F4
    target: F4
    depth: int
    height: int
    width: int
    planes: int
    lines: int
    pixels: int
    channels: int
    points: int
    x: tuple[I8, int, int, int]
    y: tuple[I8, I8, I8, I8]
