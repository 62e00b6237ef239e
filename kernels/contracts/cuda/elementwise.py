"""Records of elementwise launches. Strides are in elements."""

from typing import ClassVar

from bslite.kernels.contracts.launch import F4, I4, LaunchRecord, LaunchVariant
from bslite.kernels.contracts.record import Five, Record


class ElementwiseVariant(LaunchVariant):
    """A function of `contracts.elementwise`, an activation of `contracts.activation` after it, the number of
    axes, and the threads of a block.
    """

    function: str
    activation: str
    axes: int
    threads: int


class Loops(Record):
    """The sizes of the axes, innermost last, and the strides of every operand.

    ``_start``: the operand's first element, from the lowest of its memory (strides may be negative).
    """

    x_start: int
    z_start: int
    w_start: int
    y_start: int
    n1: int
    n2: int
    n3: int
    n4: int
    x: Five
    z: Five
    w: Five
    y: Five


class Elementwise(LaunchRecord, kernel="elementwise"):
    """``count`` elements of ``y = activation(function(x, z, w), a, b)``; ``flag`` as on the CPU."""

    AXES: ClassVar[int] = 5
    EACH: ClassVar[int] = 4  # elements per thread: as many loads are under way before the first is needed

    x: I4
    z: I4
    w: I4
    y: I4
    flag: I4
    count: int
    a: float
    b: float
    loops: Loops


class PointwiseVariant(LaunchVariant):
    """A function of `contracts.activation`, and the threads of a block."""

    code: str
    threads: int


class Pointwise(LaunchRecord, kernel="pointwise"):
    """One function over ``count`` elements of two runs of memory."""

    EACH: ClassVar[int] = Elementwise.EACH

    x: F4
    y: F4
    count: int
    a: float
    b: float
