"""Records of steps that reduce. Strides are in bytes."""

from typing import ClassVar

from bslite.kernels.contracts.cpu.rows import RowAxes
from bslite.kernels.contracts.record import Operand, StepRecord, Three, Variant


class Reduction(Variant):
    """The kernel of the reduction ``name``, of floats or of ``integers``.

    With ``rows``, the contiguous axis is reduced; else each lane has a result of its own.
    """

    name: str
    rows: bool
    integers: bool = False


class Reduce(StepRecord, kernel="reduce"):
    """A reduction that keeps three axes and reduces three, besides the contiguous one.

    ``kept``: the axes of the results. A row makes one result; in lanes, an item makes those of a block of
    ``block`` of the ``channels``; both are 0 in rows. ``m``, ``s``: counts and strides of the reduced axes;
    ``length``: their contiguous elements (1 in lanes).

    ``count``: elements of a result; ``divisor``: what a mean divides by; ``last``: of equal extremes the last
    one counts. An integer that does not fit 32 bits raises ``flag``.
    """

    AXES: ClassVar[int] = 3

    x: Operand
    y: Operand
    flag: Operand
    kept: RowAxes
    m: Three
    s: Three
    length: int
    channels: int
    block: int
    function: Reduction
    count: int
    divisor: float
    last: int
