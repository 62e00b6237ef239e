"""Records of launches that work along rows. Strides and lengths are in elements.

Rows lie along three axes; ``n1`` and ``n2`` are the sizes of the inner two. Their strides have 64 bits.
"""

from bslite.kernels.contracts.launch import F4, F8, I4, I8, R8, LaunchRecord, LaunchVariant, Threads
from bslite.kernels.contracts.record import Record
from bslite.kernels.contracts.rows import Norm, Power, Running

Three = tuple[I8, I8, I8]


class Share(Threads):
    """The distribution of rows over a block's threads: ``width`` threads per row, ``each`` elements per
    thread at once. A ``held`` row has no more elements than these.
    """

    width: int
    each: int
    held: int

    @property
    def rows(self) -> int:
        """The rows of a block."""
        return self.threads // self.width


class Part(Threads):
    """The variant of blocks that take a part of a row; a thread loads ``each`` elements at once."""

    each: int


class RowAxes(Record):
    """``rows`` of ``length`` elements, with the strides of the axes around them in x and in y."""

    rows: int
    length: int
    n1: int
    n2: int
    x: Three
    y: Three


class PartAxes(Record):
    """Rows in ``parts`` parts of ``chunk`` elements, and the strides of the axes around them in x."""

    length: int
    chunk: int
    parts: int
    n1: int
    n2: int
    x: Three


class TargetAxes(Record):
    """The strides of the axes around rows in y."""

    y: Three


class RowLaunch(LaunchRecord):
    """The base of the records of row kernels: each row of x yields one of y."""

    x: F4
    y: F4
    along: RowAxes


# -- softmax -----------------------------------------------------------------------------------------------


class SoftmaxVariant(Share):
    """``log_of``: the result is the logarithm of the softmax."""

    log_of: int


class Softmax(RowLaunch, kernel="softmax"):
    """The softmax of rows, or its logarithm."""


class SoftmaxPart(LaunchRecord, kernel="softmax_part"):
    """``made[row, part]``: the maximum of a part of a row, and its sum of exponentials."""

    x: F4
    made: F8
    part: PartAxes


class SoftmaxJoinVariant(Part):
    """``log_of``: the result is the logarithm of the softmax."""

    log_of: int


class SoftmaxJoin(LaunchRecord, kernel="softmax_join"):
    """The softmax of a part of a row, from the maxima and sums of all parts."""

    x: F4
    made: F8
    y: F4
    part: PartAxes
    to: TargetAxes


# -- norms -------------------------------------------------------------------------------------------------


class NormVariant(Share):
    """The kind of norm, and whether there are weights and a bias."""

    kind: Norm
    weighted: int
    biased: int


class NormalizeRows(RowLaunch, kernel="normalize_rows"):
    """Layer norm, RMS norm or normalisation to length one."""

    weight: F4
    bias: F4
    eps: R8


class NormalizePart(SoftmaxPart, kernel="normalize_part"):
    """``made[row, part]``: the sum of a part of a row, and of its squares."""


class NormJoinVariant(Part):
    """The kind of norm, and whether there are weights and a bias."""

    kind: Norm
    weighted: int
    biased: int


class NormalizeJoin(LaunchRecord, kernel="normalize_join"):
    """The normalisation of a part of a row, from the sums of all parts."""

    x: F4
    made: F8
    y: F4
    weight: F4
    bias: F4
    part: PartAxes
    to: TargetAxes
    eps: R8


class LocalResponseVariant(Threads):
    """``power``: the exponent."""

    power: Power


class LocalResponse(RowLaunch, kernel="lrn"):
    """Each element over a power of its neighbours' squares, with one thread per element."""

    below: int
    above: int
    alpha: float
    k: float
    beta: float


# -- group norm --------------------------------------------------------------------------------------------


class ChannelThreads(LaunchVariant):
    """A block takes ``across`` channels side by side and ``down`` pixels."""

    across: int
    down: int


class PixelAxes(Record):
    """The ``pixels`` of every image, in lines of ``columns``, and their strides in x."""

    channels: int
    pixels: int
    columns: int
    x_image: I8
    x_line: I8
    x_pixel: I8


class ChannelSums(LaunchRecord, kernel="channel_sums"):
    """``sums[image, band, channel]``: sums of elements and of squares, over bands of ``band`` pixels."""

    x: F4
    sums: F8
    size: PixelAxes
    bands: int
    band: int


class GroupScalesVariant(Threads):
    """Return whether there are weights and a bias."""

    weighted: int
    biased: int


class GroupScales(LaunchRecord, kernel="group_scales"):
    """``scales[image, 3, channels]``: centre, scale and shift. ``count``: elements of a group."""

    sums: F8
    weight: F4
    bias: F4
    scales: F4
    channels: int
    group: int
    bands: int
    count: int
    eps: R8


class ScalePixels(LaunchRecord, kernel="scale_pixels"):
    """``y = (x - centre) * scale + shift``."""

    x: F4
    y: F4
    scales: F4
    size: PixelAxes
    y_image: I8
    y_line: I8
    y_pixel: I8
    band: int


# -- running totals ----------------------------------------------------------------------------------------


class CumulateVariant(Threads):
    """The kind of running total; ``exclusive``: without the element itself; ``reverse``: from the end."""

    kind: Running
    exclusive: int
    reverse: int


class Cumulate(RowLaunch, kernel="cumulate"):
    """Running totals of rows of float32."""


class CumulateIntegers(LaunchRecord, kernel="cumulate_integers"):
    """A `Cumulate` of integers; ``flag`` is raised by a total that does not fit 32 bits."""

    x: I4
    y: I4
    flag: I4
    along: RowAxes
