"""Work along the rows of a tensor (one axis, contiguous), as both targets share it.

A lowering describes the work by a value of `RowWork`; each target makes its own record of it. Constants are
operands; None stands for one that the layer does not have.
"""

from enum import IntEnum

from bslite.kernels.contracts.activation import IDENTITY, Activation
from bslite.kernels.contracts.record import Frozen, Operand


class Norm(IntEnum):
    """The divisor of a row: its standard deviation, after the mean is subtracted (LAYER); the root of its
    mean square (RMS); the root of its sum of squares, at least epsilon (UNIT).
    """

    LAYER = 0
    RMS = 1
    UNIT = 2


class Power(IntEnum):
    """Exponents of a local response norm that kernels compute by roots, and any other."""

    ZERO = 0
    HALF = 1
    THREE_QUARTERS = 2
    ONE = 3
    ANY = 4

    @classmethod
    def of(cls, beta: float) -> "Power":
        """The member for the exponent ``beta``."""
        return {0.0: cls.ZERO, 0.5: cls.HALF, 0.75: cls.THREE_QUARTERS, 1.0: cls.ONE}.get(beta, cls.ANY)


class Running(IntEnum):
    """Running totals along a row. The value of SUM and PRODUCT is the start of their total."""

    SUM = 0
    PRODUCT = 1
    LOGSUMEXP = 2


class SoftmaxWork(Frozen):
    """``exp(x - max) / sum(exp(x - max))``, or its logarithm."""

    log: bool


class NormWork(Frozen):
    """A normalised row times ``weight`` plus ``bias``."""

    norm: Norm
    eps: float
    weight: Operand | None = None
    bias: Operand | None = None


class ResponseWork(Frozen):
    """``x / (k + alpha * sum of squares of the window) ** beta``; the window of an element reaches from
    ``below`` elements before it to ``above`` after it.
    """

    below: int
    above: int
    alpha: float
    k: float
    beta: float


class RunningWork(Frozen):
    """Running totals: ``exclusive`` ones leave out the element itself, ``reverse`` ones begin at the row's
    end. For integers, a total that does not fit 32 bits raises ``flag``.
    """

    running: Running
    exclusive: bool = False
    reverse: bool = False
    flag: Operand | None = None


RowWork = SoftmaxWork | NormWork | ResponseWork | RunningWork


class GroupWork(Frozen):
    """Group norm: ``groups`` groups of channels of every image, times ``weight``, plus ``bias``, and an
    activation.
    """

    groups: int
    eps: float
    weight: Operand | None = None
    bias: Operand | None = None
    act: Activation = IDENTITY
