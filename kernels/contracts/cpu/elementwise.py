"""Records of steps that work element by element. Strides are in bytes."""

from typing import ClassVar

from bslite.kernels.contracts.cpu.epilogue import Epilogue
from bslite.kernels.contracts.record import Four, Operand, Record, StepRecord, Three, Variant


class Function(Variant):
    """The kernel of one of `contracts.elementwise.FUNCTIONS`."""

    name: str


class Loops(Record):
    """Four axes of sizes ``n`` around ``channels`` elements, and the operands' strides along them."""

    n: Four
    channels: int
    x: Four
    z: Four
    w: Four
    y: Four


class Elementwise(StepRecord, kernel="elementwise"):
    """``y = activation(clamp(function(x, z, w)))``; an item is one index of the outer two axes. Without a
    function ``y = activation(x)``, in one pass.

    y is contiguous along the channels; so is an operand whose ``_inner`` is 1, and one with 0 is one value. A
    result that does not fit a cell raises ``flag``. An operand with ``again`` is so many cells, the same for
    every line, that come again and again along it: the kernel writes them out in scratch memory first.
    """

    AXES: ClassVar[int] = 5  # loops, including the channels

    x: Operand
    z: Operand
    w: Operand
    y: Operand
    flag: Operand
    loops: Loops
    x_inner: int
    z_inner: int
    w_inner: int
    again: Three
    function: Function | None
    epilogue: Epilogue
