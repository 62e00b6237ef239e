"""Records of steps that work along rows. Strides are in bytes, lengths in elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bslite.kernels.contracts.cpu.shares import Shares
from bslite.kernels.contracts.record import Operand, Record, StepRecord
from bslite.kernels.contracts.rows import Power

Three = tuple[int, int, int]


@dataclass(frozen=True)
class RowAxes(Record):
    """Where ``rows`` rows lie: along three axes, the inner two of ``n1`` and ``n2``.

    ``x``, ``y``: strides of these axes on both sides. An item is ``item_rows`` rows.
    """

    x: Three
    y: Three
    n1: int
    n2: int
    rows: int
    item_rows: int


@dataclass(frozen=True)
class RowRecord(StepRecord):
    """Base of the records of row kernels: each row of x, of ``length`` elements, makes one of y."""

    x: Operand
    y: Operand
    along: RowAxes
    length: int


@dataclass(frozen=True)
class Softmax(RowRecord):
    """Softmax of each row."""

    kernel: ClassVar[str] = "softmax"


@dataclass(frozen=True)
class LogSoftmax(RowRecord):
    """The logarithm of the softmax of each row."""

    kernel: ClassVar[str] = "log_softmax"


@dataclass(frozen=True)
class UnitNorm(RowRecord):
    """Each row over the root of its sum of squares, at least ``eps``."""

    kernel: ClassVar[str] = "normalize"

    eps: float


@dataclass(frozen=True)
class RmsNorm(RowRecord):
    """Each row over the root of its mean square."""

    kernel: ClassVar[str] = "rms_norm"

    weight: Operand
    has_weight: int
    eps: float


@dataclass(frozen=True)
class LayerNorm(RowRecord):
    """Each row less its mean, over its standard deviation."""

    kernel: ClassVar[str] = "layer_norm"

    weight: Operand
    bias: Operand
    has_weight: int
    has_bias: int
    eps: float


@dataclass(frozen=True)
class LocalResponse(RowRecord):
    """Each element over a power of its neighbours' squares. ``work``: ``work_bytes`` of memory per item."""

    kernel: ClassVar[str] = "lrn"

    work: Operand
    work_bytes: int
    below: int
    above: int
    alpha: float
    k: float
    power: Power
    beta: float


@dataclass(frozen=True)
class CumSum(RowRecord):
    """Running sums, of float32 or of ``integers``; ``flag`` notes an integer that does not fit 32 bits."""

    kernel: ClassVar[str] = "cumsum"

    flag: Operand
    exclusive: int
    reverse: int
    integers: int


@dataclass(frozen=True)
class CumProd(CumSum):
    """As `CumSum`, running products."""

    kernel: ClassVar[str] = "cumprod"


@dataclass(frozen=True)
class LogCumSumExp(RowRecord):
    """Logarithms of running sums of exponentials."""

    kernel: ClassVar[str] = "logcumsumexp"


@dataclass(frozen=True)
class Lines(Record):
    """Images of ``channels`` channels, contiguous, ``padded`` in tables: ``lines`` of ``pixels`` pixels."""

    lines: int
    pixels: int
    channels: int
    padded: int


@dataclass(frozen=True)
class ChannelMoments(StepRecord):
    """Group norm, first: ``moments [images][bands][3][padded]`` of the channels of every band of lines.

    The three are the mean, the sum of what is left of each element without it, the sum of that's squares.
    """

    kernel: ClassVar[str] = "channel_moments"

    x: Operand
    moments: Operand
    x_image: int
    x_line: int
    x_pixel: int
    size: Lines
    cut: Shares


@dataclass(frozen=True)
class GroupScales(StepRecord):
    """Group norm, second: ``scales [images][3][padded]``, the centre, scale and shift of every channel.

    An item is ``item_groups`` of ``all_groups`` groups of all images; ``groups`` of an image.
    """

    kernel: ClassVar[str] = "group_scales"

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


@dataclass(frozen=True)
class ScalePixels(StepRecord):
    """Group norm, third: ``(x - centre) * scale + shift``."""

    kernel: ClassVar[str] = "scale_pixels"

    x: Operand
    y: Operand
    scales: Operand
    x_image: int
    x_line: int
    x_pixel: int
    y_image: int
    y_line: int
    y_pixel: int
    size: Lines
    cut: Shares
