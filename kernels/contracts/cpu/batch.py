"""Records of batch norms in training: statistics of a batch, and gradients. Strides are in bytes."""

from bslite.kernels.contracts.cpu.rows import Lines, XSteps, YSteps
from bslite.kernels.contracts.cpu.shares import Shares
from bslite.kernels.contracts.record import Operand, Record, StepRecord, Variant


class BatchMoments(StepRecord, kernel="batch_moments"):
    """Statistics of a batch, step 2: means and variances ``y [2][channels]`` from what `ChannelMoments` made.

    Of ``images`` x ``bands`` bands of ``band_lines`` lines. An item is ``block`` registers of channels.
    """

    moments: Operand
    y: Operand
    y_row: int
    images: int
    bands: int
    band_lines: int
    size: Lines
    block: int


class GSteps(Record):
    """From one image, line and pixel of g to the next."""

    g_image: int
    g_line: int
    g_pixel: int


class Products(Variant):
    """Both sums of two registers of channels over a band of lines, through an activation."""

    through: str


class BatchProducts(StepRecord, kernel="batch_products"):
    """The gradient of a batch norm, step 1: ``partials [images][bands][2][padded]`` of every band of lines.

    The two are the sums of g and of ``g * (x - mean)``, for means ``[channels]``, in float64. g is
    the gradient behind an activation of ``x * scale + shift``, numbers ``[channels]``; ``products`` knows it.
    """

    g: Operand
    x: Operand
    means: Operand
    scale: Operand
    shift: Operand
    partials: Operand
    g_steps: GSteps
    x_steps: XSteps
    size: Lines
    cut: Shares
    products: Products


class BatchTotals(StepRecord, kernel="batch_totals"):
    """The gradient of a batch norm, step 2: ``y [2][channels]``, the sums over ``parts`` of `BatchProducts`.

    An item is ``block`` registers of channels.
    """

    partials: Operand
    y: Operand
    y_row: int
    parts: int
    channels: int
    padded: int
    block: int


class BatchGradientLine(Variant):
    """The gradient of a line of pixels, through an activation."""

    through: str


class BatchGradient(StepRecord, kernel="batch_gradient"):
    """The gradient of a batch norm, step 3: ``y = scale * (g - sums * part - (x - mean) * slope) + r`` with
    ``slope = products * part / (variance + eps)``, of numbers ``[channels]``. ``adds``: there is an r.

    ``sums`` and ``products`` are those of `BatchTotals`, ``part`` is one over the elements of a channel. g is
    as for `BatchProducts`. Scratch memory holds ``[5][padded]`` numbers of channels.
    """

    g: Operand
    x: Operand
    y: Operand
    r: Operand
    means: Operand
    variances: Operand
    sums: Operand
    products: Operand
    scale: Operand
    shift: Operand
    g_steps: GSteps
    x_steps: XSteps
    y_steps: YSteps
    r_image: int
    r_line: int
    r_pixel: int
    adds: int
    part: float
    eps: float
    size: Lines
    cut: Shares
    line: BatchGradientLine
