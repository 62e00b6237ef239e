"""Functions of two values that broadcast: aligned at the last axis, sizes equal or 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bslite.ops import checks
from bslite.ops.core import Attrs, Case, Kind, Op, ParamShapes, RowMap, Shape


class Binary(Op):
    """Base of the ops on two values, which broadcast: aligned at the last axis, sizes equal or 1."""

    kind = Kind.POINTWISE
    arity = (2, 2)

    @classmethod
    def shape(cls, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        return checks.broadcast(cls.name, ins)

    @classmethod
    def flops(cls, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return math.prod(out)

    @classmethod
    def rows(cls, params: ParamShapes, attrs: Attrs) -> RowMap:
        """The same row of each input; an input of one row, or with no such axis, is read whole."""
        return RowMap()

    @classmethod
    def keeps_images_apart(cls, ranks: Sequence[int], attrs: Attrs) -> bool:
        return len(set(ranks)) == 1

    @classmethod
    def cases(cls) -> Sequence[Case]:
        return [
            Case("two numbers", [(), ()]),
            Case("image", [(2, 19, 7, 6), (2, 19, 7, 6)]),
            Case("a number per channel", [(2, 5, 4, 3), (5, 1, 1)]),
            Case("squeeze and excite", [(2, 8, 5, 5), (2, 8, 1, 1)]),
            Case("the other way round", [(2, 8, 1, 1), (2, 8, 5, 5)]),
            Case("one map for all channels", [(2, 8, 3, 5), (2, 1, 3, 5)]),
            Case("one row", [(2, 3, 6, 4), (1, 3, 1, 4)]),
            Case("a number", [(3, 4), ()]),
            Case("both widen", [(3, 1, 5), (4, 1)]),
            Case("features", [(7, 33), (33,)]),
        ]


class Add(Binary):
    """Sum of two values."""

    name = "add"
    torch_name = "add"
    onnx_name = "Add"


class Mul(Binary):
    """Product of two values, element by element."""

    name = "mul"
    torch_name = "mul"
    onnx_name = "Mul"


class Sub(Binary):
    """Difference of two values."""

    name = "sub"
    torch_name = "sub"
    onnx_name = "Sub"


class Div(Binary):
    """Quotient of two values, rounded once."""

    name = "div"
    torch_name = "div"
    onnx_name = "Div"


class Pow(Binary):
    """The first to the power of the second, with C99's special values."""

    name = "pow"
    sample_range = (0.05, 3.0)
    torch_name = "pow"
    onnx_name = "Pow"


class Maximum(Binary):
    """The larger of two values; NaN if either is."""

    name = "maximum"
    torch_name = "maximum"
    onnx_name = "Max"


class Minimum(Binary):
    """The smaller of two values; NaN if either is."""

    name = "minimum"
    torch_name = "minimum"
    onnx_name = "Min"


class Fmod(Binary):
    """What is left of the first after whole multiples of the second, with the first's sign."""

    name = "fmod"
    torch_name = "fmod"
    onnx_name = "Mod"


class Remainder(Binary):
    """What is left of the first after whole multiples of the second, with the second's sign."""

    name = "remainder"
    torch_name = "remainder"


class Atan2(Binary):
    """The angle of the point (second, first)."""

    name = "atan2"
    torch_name = "atan2"


class PRelu(Binary):
    """The first above zero, times the second below: leaky relu with slopes of its own."""

    name = "prelu"
    torch_name = "prelu"
    onnx_name = "PRelu"
