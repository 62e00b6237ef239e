"""Records of Fourier transforms. Strides are in bytes.

A signal is transformed by passes of small transforms (Cooley and Tukey, 1965, in Stockham's order) over
`core` complex points, each a pair of registers: one of real parts, one of imaginary ones.
"""

from enum import IntEnum

from bslite.kernels.contracts.cpu.rows import RowAxes
from bslite.kernels.contracts.record import Operand, Record, StepRecord


class Numbers(IntEnum):
    """What a transform reads: complex numbers, real ones, or the first half of a transform of real ones."""

    COMPLEX = 0
    REAL = 1
    HALF = 2


class Form(IntEnum):
    """How the signals of a register lie: numbers side by side, as pairs of both parts, or each as a row."""

    SIDE = 0
    PAIRS = 1
    ROWS = 2


#: Transforms of so few points are one straight piece of code; of others, primes, they are loops.
RADICES = (2, 3, 4, 5, 7, 8)


class Transform(Record):
    """``scale`` times the transform of ``length`` points, of which x has ``given``; the rest are zeros.

    ``made``: the points of y. ``core``: complex points that the passes transform, half of ``length`` where
    real numbers are taken as pairs. ``radices``: the sizes of the passes in their order, then 0.
    ``twiddles``: their factors (`engines/cpu/fourier.py`). ``halves``: ``exp(-2 pi i k / length)`` for k up
    to ``core``, where that is half of the length, a pair each, or all real parts before all imaginary ones
    where rows are transformed. ``window``: numbers that the points of x are times, where ``windowed``.
    ``real``: only real parts are stored. ``room``: points of a buffer of scratch memory.
    """

    twiddles: Operand
    halves: Operand
    window: Operand
    radices: Operand
    source: Numbers
    real: int
    windowed: int
    inverse: int
    given: int
    made: int
    length: int
    core: int
    room: int
    scale: float


class FourierLanes(StepRecord, kernel="fourier_lanes"):
    """Transforms of signals side by side: of ``channels`` that are ``x_lane`` and ``y_lane`` apart; a row of
    ``along`` is a block of ``block`` of these. ``x_by``, ``x_part``: from a point to the next, and from its
    real to its imaginary part. ``padded``: if it is not 0, passes of so many points convolve the core's with
    a ``chirp``.
    """

    x: Operand
    y: Operand
    along: RowAxes
    how: Transform
    chirp: Operand
    padded: int
    channels: int
    block: int
    x_form: Form
    x_lane: int
    x_by: int
    x_part: int
    y_form: Form
    y_lane: int
    y_by: int
    y_part: int


class FourierRows(StepRecord, kernel="fourier_rows"):
    """Transforms of rows of contiguous points, each taken as a matrix ``[high, low]`` of core points.

    Its columns are transformed, multiplied by ``between [low / lanes][high][2][lanes]``, twiddle factors
    times ``scale``, and transposed; then what are columns now. ``twiddles`` and ``radices`` are those of
    columns of ``high`` points, ``low_twiddles`` and ``low_radices`` those of the others.
    """

    x: Operand
    y: Operand
    along: RowAxes
    how: Transform
    low_twiddles: Operand
    low_radices: Operand
    between: Operand
    high: int
    low: int
