"""Work along the rows of a tensor (one axis, contiguous), as both targets know it: kinds, and what is asked.

A lowering says what is to be done with the rows by a value of `RowWork`; each target makes its own record of
it. Constants are operands; None stands for one that the layer does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from bslite.kernels.contracts.record import Operand


class Norm(IntEnum):
    """What a row is divided by: its standard deviation, after its mean is taken off (LAYER); the root of its
    mean square (RMS); the root of its sum of squares, at least epsilon (UNIT).
    """

    LAYER = 0
    RMS = 1
    UNIT = 2


class Power(IntEnum):
    """Exponents of a local response norm for which there are roots, and any other."""

    ZERO = 0
    HALF = 1
    THREE_QUARTERS = 2
    ONE = 3
    ANY = 4

    @classmethod
    def of(cls, beta: float) -> Power:
        """The power that ``beta`` is."""
        return {0.0: cls.ZERO, 0.5: cls.HALF, 0.75: cls.THREE_QUARTERS, 1.0: cls.ONE}.get(beta, cls.ANY)


class Running(IntEnum):
    """Totals that run along a row. The value of SUM and PRODUCT is what their total begins with."""

    SUM = 0
    PRODUCT = 1
    LOGSUMEXP = 2


@dataclass(frozen=True)
class SoftmaxWork:
    """``exp(x - max) / sum(exp(x - max))``, or its logarithm."""

    log: bool


@dataclass(frozen=True)
class NormWork:
    """A row normalised, then times ``weight``, plus ``bias``."""

    norm: Norm
    eps: float
    weight: Operand | None = None
    bias: Operand | None = None


@dataclass(frozen=True)
class ResponseWork:
    """``x / (k + alpha * sum of squares of the window) ** beta``; the window of an element reaches from
    ``below`` elements before it to ``above`` after it.
    """

    below: int
    above: int
    alpha: float
    k: float
    beta: float


@dataclass(frozen=True)
class RunningWork:
    """Running totals: ``exclusive`` ones leave out the element itself, ``reverse`` ones begin at the row's
    end. ``flag``: of integers, where a total that does not fit 32 bits is noted.
    """

    running: Running
    exclusive: bool = False
    reverse: bool = False
    flag: Operand | None = None


RowWork = SoftmaxWork | NormWork | ResponseWork | RunningWork


@dataclass(frozen=True)
class GroupWork:
    """Group norm: ``groups`` groups of channels of every image, then times ``weight``, plus ``bias``."""

    groups: int
    eps: float
    weight: Operand | None = None
    bias: Operand | None = None
