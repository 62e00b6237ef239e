"""Records of launches that work along rows. Strides and lengths are in elements.

Rows lie along three axes, of which ``n1`` and ``n2`` are the sizes of the inner two. Their strides have 64
bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bslite.kernels.contracts.launch import F4, F8, I4, I8, R8, LaunchRecord, LaunchVariant
from bslite.kernels.contracts.record import Record
from bslite.kernels.contracts.rows import Norm, Power, Running

Three = tuple[I8, I8, I8]


@dataclass(frozen=True)
class Threads(LaunchVariant):
    """Threads of a block."""

    threads: int


@dataclass(frozen=True)
class Share(Threads):
    """How a block's threads share rows: ``width`` to a row, ``each`` elements of a thread at once, which are
    all it has if the row is ``held``.
    """

    width: int
    each: int
    held: int

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.threads // self.width


@dataclass(frozen=True)
class Part(Threads):
    """A block has a part of a row; a thread loads ``each`` elements at once."""

    each: int


@dataclass(frozen=True)
class RowAxes(Record):
    """``rows`` of ``length`` elements, with the strides of the axes around them in x and in y."""

    rows: int
    length: int
    n1: int
    n2: int
    x: Three
    y: Three


@dataclass(frozen=True)
class PartAxes(Record):
    """Rows in ``parts`` parts of ``chunk`` elements, and the strides of the axes around them in x."""

    length: int
    chunk: int
    parts: int
    n1: int
    n2: int
    x: Three


@dataclass(frozen=True)
class TargetAxes(Record):
    """Strides of the axes around rows in y."""

    y: Three


@dataclass(frozen=True)
class RowLaunch(LaunchRecord):
    """Base of the records of row kernels: each row of x makes one of y."""

    x: F4
    y: F4
    along: RowAxes


# -- softmax -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SoftmaxVariant(Share):
    """``log_of``: its logarithm."""

    log_of: int


@dataclass(frozen=True)
class Softmax(RowLaunch):
    """Softmax of rows, or its logarithm."""

    kernel: ClassVar[str] = "softmax"


@dataclass(frozen=True)
class SoftmaxPart(LaunchRecord):
    """``made[row, part]``: the maximum of a part of a row, and its sum of exponentials."""

    kernel: ClassVar[str] = "softmax_part"

    x: F4
    made: F8
    part: PartAxes


@dataclass(frozen=True)
class SoftmaxJoinVariant(Part):
    """``log_of``: the logarithm of the softmax."""

    log_of: int


@dataclass(frozen=True)
class SoftmaxJoin(LaunchRecord):
    """The softmax of a part of a row, from what all parts made."""

    kernel: ClassVar[str] = "softmax_join"

    x: F4
    made: F8
    y: F4
    part: PartAxes
    to: TargetAxes


# -- norms -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NormVariant(Share):
    """Whether there are weights and a bias."""

    kind: Norm
    weighted: int
    biased: int


@dataclass(frozen=True)
class NormalizeRows(RowLaunch):
    """Layer norm, RMS norm, normalisation to length one."""

    kernel: ClassVar[str] = "normalize_rows"

    weight: F4
    bias: F4
    eps: R8


@dataclass(frozen=True)
class NormalizePart(SoftmaxPart):
    """``made[row, part]``: the sum of a part of a row, and of its squares."""

    kernel: ClassVar[str] = "normalize_part"


@dataclass(frozen=True)
class NormJoinVariant(Part):
    """Whether there are weights and a bias."""

    kind: Norm
    weighted: int
    biased: int


@dataclass(frozen=True)
class NormalizeJoin(LaunchRecord):
    """A part of a row normalised, from the sums of all parts."""

    kernel: ClassVar[str] = "normalize_join"

    x: F4
    made: F8
    y: F4
    weight: F4
    bias: F4
    part: PartAxes
    to: TargetAxes
    eps: R8


@dataclass(frozen=True)
class LocalResponseVariant(Threads):
    """The exponent."""

    power: Power


@dataclass(frozen=True)
class LocalResponse(RowLaunch):
    """Each element over a power of its neighbours' squares; a thread has one element."""

    kernel: ClassVar[str] = "lrn"

    below: int
    above: int
    alpha: float
    k: float
    beta: float


# -- group norm --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChannelThreads(LaunchVariant):
    """A block is ``across`` channels side by side by ``down`` pixels."""

    across: int
    down: int


@dataclass(frozen=True)
class PixelAxes(Record):
    """``pixels`` of every image, in lines of ``columns``, and where they are in x."""

    channels: int
    pixels: int
    columns: int
    x_image: I8
    x_line: I8
    x_pixel: I8


@dataclass(frozen=True)
class ChannelSums(LaunchRecord):
    """``sums[image, band, channel]``: of elements and of their squares, over bands of ``band`` pixels."""

    kernel: ClassVar[str] = "channel_sums"

    x: F4
    sums: F8
    size: PixelAxes
    bands: int
    band: int


@dataclass(frozen=True)
class GroupScalesVariant(Threads):
    """Whether there are weights and a bias."""

    weighted: int
    biased: int


@dataclass(frozen=True)
class GroupScales(LaunchRecord):
    """``scales[image, 3, channels]``: centre, scale and shift. ``count``: elements of a group."""

    kernel: ClassVar[str] = "group_scales"

    sums: F8
    weight: F4
    bias: F4
    scales: F4
    channels: int
    group: int
    bands: int
    count: int
    eps: R8


@dataclass(frozen=True)
class ScalePixels(LaunchRecord):
    """``y = (x - centre) * scale + shift``."""

    kernel: ClassVar[str] = "scale_pixels"

    x: F4
    y: F4
    scales: F4
    size: PixelAxes
    y_image: I8
    y_line: I8
    y_pixel: I8
    band: int


# -- running totals ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CumulateVariant(Threads):
    """What runs; ``exclusive``: without the element itself; ``reverse``: from the row's end."""

    kind: Running
    exclusive: int
    reverse: int


@dataclass(frozen=True)
class Cumulate(RowLaunch):
    """Running totals of rows of float32."""

    kernel: ClassVar[str] = "cumulate"


@dataclass(frozen=True)
class CumulateIntegers(LaunchRecord):
    """As `Cumulate`, of integers; ``flag`` notes a total that does not fit 32 bits."""

    kernel: ClassVar[str] = "cumulate_integers"

    x: I4
    y: I4
    flag: I4
    along: RowAxes
