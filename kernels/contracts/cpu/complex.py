"""Records of steps on complex numbers, pairs of neighbouring floats. Strides are in bytes."""

from typing import ClassVar

from bslite.kernels.contracts.cpu.rows import RowRecord
from bslite.kernels.contracts.record import Four, Operand, Record, StepRecord


class PairLoops(Record):
    """Four axes of sizes ``n`` around ``pairs`` neighbours, and the operands' strides along them."""

    n: Four
    pairs: int
    x: Four
    z: Four
    y: Four


class ComplexProduct(StepRecord, kernel="complex_product"):
    """``y = x * z``, or with conjugates of them; an item is one index of the outer two axes.

    y and x are contiguous along the pairs; so is z where ``z_inner``, else it is one number.
    """

    AXES: ClassVar[int] = 5  # loops, including the pairs

    x: Operand
    z: Operand
    y: Operand
    loops: PairLoops
    z_inner: int
    x_conj: int
    z_conj: int


class PairNorms(RowRecord, kernel="pair_norms"):
    """Sums of both squares of ``length`` pairs of each row, or their ``root``, added up in float64."""

    root: int
