"""Records of steps that work along rows. Strides are in bytes, lengths in elements."""

from bslite.kernels.contracts.cpu.epilogue import Epilogue
from bslite.kernels.contracts.cpu.shares import Shares
from bslite.kernels.contracts.record import Operand, Record, StepRecord, Three
from bslite.kernels.contracts.rows import Power


class RowAxes(Record):
    """The places of ``rows`` rows along three axes, the inner two of sizes ``n1`` and ``n2``.

    ``x``, ``y``: the strides of these axes in input and output. An item is ``item_rows`` rows.
    """

    x: Three
    y: Three
    n1: int
    n2: int
    rows: int
    item_rows: int


class RowRecord(StepRecord):
    """Base of the records of row kernels: each row of x, of ``length`` elements, makes one of y."""

    x: Operand
    y: Operand
    along: RowAxes
    length: int


class Rounded(RowRecord, kernel="rounded"):
    """Rounds each row to bfloat16, two numbers to a cell, a zero beside the last one of an odd number.

    ``flag`` is raised by numbers without a finite bfloat16: NaN, infinities, magnitudes from 3.396e38 on.
    """

    flag: Operand


PICTURE = 4  # numbers of a pixel of a `Picture`


class Picture(StepRecord, kernel="picture"):
    """Rounds images of ``channels`` planes, at most `PICTURE`, to bfloat16: ``lines`` of ``cols`` pixels of
    `PICTURE` numbers, zeros beyond the channels, with ``left`` and ``right`` pixels of zeros beside them. An
    item is ``item_lines`` lines. The columns of a plane lie side by side. ``flag``: as of `Rounded`.
    """

    x: Operand
    y: Operand
    flag: Operand
    images: int
    lines: int
    cols: int
    channels: int
    left: int
    right: int
    x_image: int
    x_channel: int
    x_line: int
    y_image: int
    y_line: int
    item_lines: int


class Softmax(RowRecord, kernel="softmax"):
    """Softmax of each row."""


class LogSoftmax(RowRecord, kernel="log_softmax"):
    """The logarithm of the softmax of each row."""


class UnitNorm(RowRecord, kernel="normalize"):
    """Divides each row by the root of its sum of squares, or by ``eps`` if that is larger."""

    eps: float


class RmsNorm(RowRecord, kernel="rms_norm"):
    """Divides each row by the root of its mean square."""

    weight: Operand
    has_weight: int
    eps: float


class LayerNorm(RowRecord, kernel="layer_norm"):
    """Subtracts each row's mean and divides by its standard deviation."""

    weight: Operand
    bias: Operand
    has_weight: int
    has_bias: int
    eps: float


class LocalResponse(RowRecord, kernel="lrn"):
    """Elements over a power of their neighbours' squares. ``work``: ``work_bytes`` of memory per item."""

    work: Operand
    work_bytes: int
    below: int
    above: int
    alpha: float
    k: float
    power: Power
    beta: float


class CumSum(RowRecord, kernel="cumsum"):
    """Running sums, of float32 or of ``integers``; an integer that does not fit 32 bits raises ``flag``."""

    flag: Operand
    exclusive: int
    reverse: int
    integers: int


class CumProd(CumSum, kernel="cumprod"):
    """Running products, with the fields of `CumSum`."""


class LaneRecord(RowRecord):
    """Base of the records of lane kernels: ``length`` elements of x, ``x_by`` apart, make as many of y, of
    each of ``channels`` contiguous lanes; a row of ``along`` is a block of ``block`` of these.
    """

    x_by: int
    y_by: int
    channels: int
    block: int


class SoftmaxLanes(LaneRecord, kernel="softmax_lanes"):
    """Softmax of each lane."""


class LogSoftmaxLanes(LaneRecord, kernel="log_softmax_lanes"):
    """The logarithm of the softmax of each lane."""


class CumSumLanes(LaneRecord, kernel="cumsum_lanes"):
    """Running sums of float32."""

    exclusive: int
    reverse: int


class CumProdLanes(CumSumLanes, kernel="cumprod_lanes"):
    """Running products, with the fields of `CumSumLanes`."""


class LogCumSumExp(RowRecord, kernel="logcumsumexp"):
    """Logarithms of running sums of exponentials."""


class Lines(Record):
    """Images: ``lines`` of ``pixels`` of ``channels`` contiguous channels, ``padded`` in tables."""

    lines: int
    pixels: int
    channels: int
    padded: int


class XSteps(Record):
    """From one image, line and pixel of x to the next."""

    x_image: int
    x_line: int
    x_pixel: int


class YSteps(Record):
    """From one image, line and pixel of y to the next."""

    y_image: int
    y_line: int
    y_pixel: int


class ChannelMoments(StepRecord, kernel="channel_moments"):
    """Group norm, step 1: ``moments [images][bands][3][padded]`` of the channels of every band of lines.

    The three are the mean, the sum of the elements' deviations from it, and the sum of the squared
    deviations.
    """

    x: Operand
    moments: Operand
    x_steps: XSteps
    size: Lines
    cut: Shares


class GroupScales(StepRecord, kernel="group_scales"):
    """Group norm, step 2: ``scales [images][3][padded]``, the centre, scale and shift of every channel.

    An item is ``item_groups`` of the ``all_groups`` groups of all images; an image has ``groups``.
    """

    moments: Operand
    scales: Operand
    weight: Operand
    bias: Operand
    has_weight: int
    has_bias: int
    eps: float
    groups: int
    item_groups: int
    all_groups: int
    group_channels: int
    padded: int
    lines: int
    pixels: int
    band_lines: int
    bands: int


class ScalePixels(StepRecord, kernel="scale_pixels"):
    """Group norm, step 3: ``(x - centre) * scale + shift``, and an activation."""

    x: Operand
    y: Operand
    scales: Operand
    x_steps: XSteps
    y_steps: YSteps
    size: Lines
    cut: Shares
    epilogue: Epilogue
