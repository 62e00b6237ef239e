"""Work on results around a CPU kernel's store: parts of the records of several steps."""

import math

from bslite.kernels.contracts.activation import Activation
from bslite.kernels.contracts.record import Operand, Record, Variant


class Pointwise(Variant):
    """The kernel of one of `contracts.activation.FUNCTIONS`, of lines of pixels."""

    function: str


class After(Record):
    """A function that runs in place on the results once they are stored; None for no function.

    ``act_a`` and ``act_b`` are neighbours: the kernel of the function takes the address of the first.
    """

    activation: Pointwise | None
    act_a: float
    act_b: float

    @classmethod
    def of(cls, act: Activation) -> "After":
        """The fields for any activation; a ReLU becomes a clamp."""
        if act.function == "identity":
            return cls(None, 0.0, 0.0)
        if act.function == "relu":
            return cls(Pointwise("clamp"), 0.0, math.inf)
        return cls(Pointwise(act.function), act.a, act.b)


class Epilogue(Record):
    """An activation in a kernel's store: ReLUs and clamps are bounds; any other function runs after the
    store.
    """

    lo: float
    hi: float
    after: After

    @classmethod
    def of(cls, act: Activation) -> "Epilogue":
        """The fields for an activation."""
        none = After(None, 0.0, 0.0)
        if act.function == "relu":
            return cls(0.0, math.inf, none)
        if act.function == "clamp":
            return cls(act.a, act.b, none)
        return cls(-math.inf, math.inf, After.of(act))


class Affine(Record):
    """``value * scale + shift`` for each channel before it is stored, where ``affine`` is 1.

    Where ``affine`` is 0 the kernel reads neither operand, so both may be anything.
    """

    affine: int
    scale: Operand
    shift: Operand
