"""Functions of two values that broadcast: aligned at the last axis, sizes equal or 1."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import INTEGERS, REGISTRY, Attr, Attrs, Case, Kind, Op, ParamShapes, Shape, declare
from bslite.ops.values import Applied, Gradients, Value


class Broadcast(Op):
    """Base of the ops whose inputs broadcast: aligned at the last axis, sizes equal or 1."""

    kind = Kind.POINTWISE
    cost = 1

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        return checks.broadcast(self.name, ins)

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return len(set(ranks)) == 1


class Binary(Broadcast):
    """Base of the ops on two values."""

    arity = (2, 2)
    #: The gradients of both inputs x and y of which the result is z, where g is that of z.
    slopes: ClassVar["staticmethod[[Value, Value, Value, Value], tuple[Value, Value]]"]

    def gradients(self, at: Applied, grad: Value) -> tuple[Value, Value]:
        """Those of both inputs, in the shape of the result."""
        x, y = at.inputs
        return self.slopes(grad, x, y, at.output)

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        x, y = at.inputs
        made = self.gradients(at, grad)
        return {i: g.sum_to(x.shape) for i, (g, x) in enumerate(zip(made, (x, y), strict=True))}

    def cases(self) -> Sequence[Case]:
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


class Arithmetic(Binary):
    """Base of the ops on two float32 values or two integers of one dtype."""

    integers: ClassVar[tuple[int, int]] = (-9, 10)  # what integer inputs of its cases are drawn from
    may_fail = True

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        return ins[0] if ins[0] == ins[1] and ins[0] in INTEGERS else super().dtype(ins, params, attrs)

    def cases(self) -> Sequence[Case]:
        return [*super().cases(), *self.integer_cases()]

    def integer_cases(self) -> Sequence[Case]:
        """Of integers."""
        return [
            Case("64-bit integers", [(7, 33), (33,)], dtypes=["int64"] * 2, integers=self.integers),
            Case("32-bit integers", [(2, 3, 4, 5), ()], dtypes=["int32"] * 2, integers=self.integers),
        ]


class Extreme(Arithmetic):
    """Base of the larger and the smaller of two values."""

    attrs = (Attr("first", a.boolean, False, "of equals the first has the gradient; else each half of it"),)
    beats: ClassVar[str]  # the comparison by which one is chosen

    def gradients(self, at: Applied, grad: Value) -> tuple[Value, Value]:
        x, y = at.inputs
        if at.attrs["first"]:  # also where one is NaN: that one
            second = y.op(self.beats, x) | y.op("isnan")
            return second.where(0.0, grad), second.where(grad, 0.0)
        shared = x.op("equal", y).where(grad * 0.5, 0.0)
        return x.op(self.beats, y).where(grad, shared), y.op(self.beats, x).where(grad, shared)

    def cases(self) -> Sequence[Case]:
        return [*super().cases(), Case("of equals the first", [(2, 5, 4), (4,)], attrs={"first": True})]


def _power(g: Value, x: Value, y: Value, z: Value) -> tuple[Value, Value]:
    by_x = y.op("equal", 0.0).where(0.0, g * y * x.op("pow", y - 1.0))
    by_y = (x.op("equal", 0.0) & (y >= 0.0)).where(0.0, g * z * x.op("log"))
    return by_x, by_y


def _turn(g: Value, x: Value, y: Value) -> tuple[Value, Value]:
    """``(y, -x) / (x^2 + y^2)``, scaled so that no square leaves float32's range; 0 at the origin."""
    size = x.op("abs").op("maximum", y.op("abs")).op("clamp", low=1e-37, high=1e38)  # 0 and infinity stay
    x, y = x / size, y / size
    square = x * x + y * y
    none = square.op("equal", 0.0)
    return none.where(0.0, g * (y / square) / size), none.where(0.0, -g * (x / square) / size)


declare(Arithmetic, "add", "Sum of two values.", onnx="Add", slopes=lambda g, x, y, z: (g, g))
declare(
    Arithmetic,
    "mul",
    "Product of two values, element by element.",
    onnx="Mul",
    slopes=lambda g, x, y, z: (g * y, g * x),
)
declare(Arithmetic, "sub", "Difference of two values.", onnx="Sub", slopes=lambda g, x, y, z: (g, -g))
declare(
    Arithmetic,
    "div",
    "Quotient of two values, rounded once; of integers towards zero.",
    onnx="Div",
    integers=(1, 30),
    slopes=lambda g, x, y, z: (g / y, -g * (z / y)),
)
declare(
    Arithmetic,
    "pow",
    "The first to the power of the second, with C99's special values.",
    onnx="Pow",
    integers=(0, 6),
    sample_range=(0.05, 3.0),
    slopes=lambda g, x, y, z: _power(g, x, y, z),
)
declare(Extreme, "maximum", "The larger of two values; NaN if either is.", onnx="Max", beats="greater")
declare(Extreme, "minimum", "The smaller of two values; NaN if either is.", onnx="Min", beats="less")
declare(
    Arithmetic,
    "fmod",
    "What is left of the first after whole multiples of the second, with the first's sign.",
    onnx="Mod",
    integers=(1, 30),
    slopes=lambda g, x, y, z: (g, -g * (x / y).op("trunc")),
)
declare(
    Arithmetic,
    "remainder",
    "What is left of the first after whole multiples of the second, with the second's sign.",
    integers=(1, 30),
    slopes=lambda g, x, y, z: (g, -g * (x / y).op("floor")),
)


class FloorDiv(Arithmetic):
    """Quotient of two integers, towards minus infinity."""

    name = "floor_div"
    integers = (1, 30)
    torch_name = "floor_divide"

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        if ins[0] != ins[1] or ins[0] not in INTEGERS:
            raise SpecError(f"op 'floor_div' takes integers of one dtype, got {' and '.join(ins)}")
        return ins[0]

    def cases(self) -> Sequence[Case]:
        return self.integer_cases()


declare(Binary, "atan2", "The angle of the point (second, first).", slopes=lambda g, x, y, z: _turn(g, x, y))
declare(
    Binary,
    "logaddexp",
    "``log(exp(x) + exp(y))`` without overflow: the sum of two numbers held as their logarithms.",
    cost=5,
    slopes=lambda g, x, y, z: (g * (x - y).op("sigmoid"), g * (y - x).op("sigmoid")),
)
declare(
    Binary,
    "prelu",
    "The first above zero, times the second below: leaky relu with slopes of its own.",
    onnx="PRelu",
    slopes=lambda g, x, y, z: ((x > 0.0).where(g, g * y), (x > 0.0).where(0.0, g * x)),
)


#: The ops of this file.
ARITHMETIC = tuple(op.name for op in REGISTRY.values() if isinstance(op, Binary))
