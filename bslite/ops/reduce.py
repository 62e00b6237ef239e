"""Reductions over any axes: sums, norms, extremes, moments; positions of extremes; running sums."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import INTEGERS, REGISTRY, Attr, Attrs, Case, Kind, Op, ParamShapes, Shape, case, declare
from bslite.ops.values import Applied, Gradients, Value

AXES = (
    Attr("axes", a.ints(), (), "none: all of them"),
    Attr("keepdim", a.boolean, False, "keep reduced axes with size 1"),
)


def reduced_axes(op: str, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """The axes as sorted non-negative numbers; all of them where none is given. SpecError if one is wrong."""
    found = sorted(checks.axis(op, axis, rank) for axis in axes) if axes else list(range(rank))
    if len(set(found)) != len(found):
        raise SpecError(f"op {op!r}: axes {list(axes)} name an axis of rank {rank} twice")
    return tuple(found)


class Reducing(Op):
    """Base of the ops whose result lacks some axes."""

    kind = Kind.REDUCTION

    def axes(self, attrs: Attrs, rank: int) -> tuple[int, ...]:
        """The axes that the op reduces, sorted and not negative."""
        return reduced_axes(self.name, attrs["axes"], rank)

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        axes = self.axes(attrs, len(ins[0]))
        if attrs["keepdim"]:
            return tuple(1 if i in axes else n for i, n in enumerate(ins[0]))
        return tuple(n for i, n in enumerate(ins[0]) if i not in axes)

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return 0 not in self.axes(attrs, ranks[0])


class Reduction(Reducing):
    """Base of the ops that make one number of all elements along some axes."""

    attrs: ClassVar[tuple[Attr, ...]] = AXES
    also: ClassVar[Sequence[str]] = ()  # dtypes it takes besides float32, and then makes
    integers: ClassVar[tuple[int, int]] = (-9, 10)  # what integer inputs of its cases are drawn from
    variants: ClassVar[Sequence[dict[str, Any]]] = ({},)  # attributes the cases try
    #: The gradient, of that of the result g, the input x, the result y, all broadcastable, and the node.
    slope: ClassVar["staticmethod[[Value, Value, Value, Applied], Value] | None"] = None

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        if self.slope is None:
            return super().vjp(at, grad)
        (x,) = at.inputs
        axes = self.axes(at.attrs, len(x.shape))
        kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
        made = self.slope(grad.reshape(*kept), x, at.output.reshape(*kept), at)
        return {0: made.expand(x.shape)}

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        return ins[0] if ins[0] in self.also else super().dtype(ins, params, attrs)

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return math.prod(ins[0])

    def cases(self) -> Sequence[Case]:
        def case(label: str, shape: Shape, axes: tuple[int, ...], keepdim: bool, **more: Any) -> Case:
            tried = "".join(f", {k}={v}" for k, v in more.items())
            return Case(label + tried, [shape], attrs={"axes": axes, "keepdim": keepdim, **more})

        first, *others = self.variants
        return [
            case("all of a vector", (37,), (), False, **first),
            case("all of an image, kept", (2, 5, 4, 3), (), True, **first),
            case("last axis", (3, 5, 67), (-1,), False, **first),
            case("first axis", (67, 5, 35), (0,), False, **first),
            case("middle axis", (3, 19, 33), (1,), True, **first),
            case("pixels of an image", (2, 35, 9, 7), (2, 3), False, **first),
            case("channels of an image", (2, 35, 4, 3), (1,), True, **first),
            case("two channels of an image", (2, 2, 17, 5), (1,), False, **first),
            case("columns", (2, 5, 4, 7), (3,), False, **first),
            case("batch and channels", (3, 6, 4, 5), (0, 1), False, **first),
            case("apart", (3, 4, 5, 6), (1, 3), True, **first),
            case("one channel", (2, 1, 5, 9), (2,), False, **first),
            case("every other of six", (2, 3, 2, 4, 3, 5), (0, 2, 4), False, **first),
            case("long", (2, 5003), (1,), False, **first),
            *(case("rows", (7, 21), (-1,), False, **more) for more in others),
            *(
                Case(f"{t}, {axes}", [(3, 5, 4, 2)], attrs={"axes": axes}, dtypes=[t], integers=self.integers)
                for t in self.also
                for axes in ((1,), (0, 2, 3))
            ),
        ]


def _as_rows(x: Value, axes: Sequence[int]) -> tuple[Value, Callable[[Value], Value]]:
    """``x`` with ``axes`` as one, its last, in row-major order; and the way back."""
    rank = len(x.shape)
    order = [*(i for i in range(rank) if i not in axes), *axes]
    moved = x.permute(*order)
    kept = moved.shape[: rank - len(axes)]
    rows = moved.reshape(*kept, math.prod(moved.shape[rank - len(axes) :]))
    places = [order.index(i) for i in range(rank)]
    return rows, lambda made: made.reshape(*moved.shape).permute(*places)


class Extreme(Reduction):
    """Base of the largest and the smallest element. Its gradient is shared by equals, or goes to the first,
    as in torch that of ``amax`` and that of ``max`` along an axis.
    """

    attrs = (*AXES, Attr("first", a.boolean, False, "of equals the first has the gradient; else shared"))
    also = (*INTEGERS, "bool")
    variants = ({}, {"first": True})
    place: ClassVar[str]  # the op that gives the position of the first

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        (x,) = at.inputs
        axes = self.axes(at.attrs, len(x.shape))
        grad = grad.reshape(*(1 if i in axes else n for i, n in enumerate(x.shape)))
        if not at.attrs["first"]:
            equal = x.op("equal", at.output.reshape(*grad.shape)).op("cast", to="float32")
            counted = [i for i, n in enumerate(grad.shape) if n != x.shape[i]]
            return {0: equal * (grad / equal.sum(*counted, keepdim=True))}
        rows, back = _as_rows(x, axes)
        places = rows.op(self.place, axis=-1, keepdim=True)
        zeros = grad.tape.constant(0.0).expand(rows.shape)
        return {0: back(zeros.op("scatter_elements", places, grad.reshape(*places.shape), axis=-1))}


class Prod(Reduction):
    """The product of all elements."""

    name = "prod"
    also = INTEGERS
    integers = (-1, 3)
    may_fail = True
    torch_name = "prod"
    onnx_name = "ReduceProd"

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        """By each element the product of all others: of those before it and those behind it."""
        (x,) = at.inputs
        rows, back = _as_rows(x, self.axes(at.attrs, len(x.shape)))
        before, behind = (rows.op("cumprod", axis=-1, exclusive=True, reverse=r) for r in (False, True))
        return {0: back(grad.reshape(*rows.shape[:-1], 1) * (before * behind))}


def _around_mean(g: Value, x: Value, y: Value, at: Applied) -> Value:
    axes = [i for i, n in enumerate(y.shape) if n != x.shape[i]]
    spread = x - x.mean(*axes, keepdim=True) if axes else x - x
    free = x.size / y.size - at.attrs["correction"]
    return g * (2.0 / free if free else math.inf) * spread


declare(
    Reduction,
    "sum",
    "The sum of all elements.",
    onnx="ReduceSum",
    also=INTEGERS,
    may_fail=True,
    slope=lambda g, x, y, at: g,
)
declare(
    Reduction,
    "mean",
    "The arithmetic mean of all elements.",
    onnx="ReduceMean",
    slope=lambda g, x, y, at: g * (y.size / x.size),
)
declare(
    Extreme,
    "amax",
    "The largest element, NaN if any element is NaN. Of bools: whether any is true.",
    onnx="ReduceMax",
    place="argmax",
)
declare(
    Extreme,
    "amin",
    "The smallest element, NaN if any element is NaN. Of bools: whether all are true.",
    onnx="ReduceMin",
    place="argmin",
)
declare(
    Reduction,
    "sum_square",
    "The sum of the squares of all elements.",
    onnx="ReduceSumSquare",
    torch="",
    slope=lambda g, x, y, at: 2.0 * g * x,
)
declare(
    Reduction,
    "l1_norm",
    "The sum of the absolute values of all elements.",
    onnx="ReduceL1",
    slope=lambda g, x, y, at: g * x.op("sign"),
    torch="linalg_vector_norm",
)
declare(
    Reduction,
    "l2_norm",
    "The square root of the sum of the squares of all elements.",
    onnx="ReduceL2",
    slope=lambda g, x, y, at: y.op("equal", 0.0).where(0.0, g * (x / y)),
    torch="linalg_vector_norm",
)
declare(
    Reduction,
    "log_sum",
    "The logarithm of the sum of all elements.",
    onnx="ReduceLogSum",
    slope=lambda g, x, y, at: g * (-y).op("exp"),
    torch="",
    sample_range=(0.0, 2.0),
)
declare(
    Reduction,
    "logsumexp",
    "The logarithm of the sum of the exponentials of all elements; no exponential overflows.",
    onnx="ReduceLogSumExp",
    slope=lambda g, x, y, at: g * (x - y).op("exp"),
)


class Var(Reduction):
    """The variance: the sum of squared distances from the mean, over the count minus ``correction``."""

    name = "var"
    attrs = (*AXES, Attr("correction", a.real, 1.0))
    variants = ({}, {"correction": 0.0}, {"correction": 1.5})
    slope = staticmethod(lambda g, x, y, at: _around_mean(g, x, y, at))
    torch_name = "var"


declare(
    Var,
    "std",
    "The standard deviation, which is the square root of the variance.",
    slope=lambda g, x, y, at: _around_mean(y.op("equal", 0.0).where(0.0, 0.5 * (g / y)), x, y, at),
)


class Arg(Reducing):
    """Base of the ops that give the position of an extreme along one axis, as int64."""

    attrs = (
        Attr("axis", a.optional(a.integer()), None, "None: of the value as a vector, row-major"),
        Attr("keepdim", a.boolean, False, "keep reduced axes with size 1"),
        Attr("last", a.boolean, False, "of equals the last"),
    )

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        super().dtype(ins, params, attrs)
        return "int64"

    def axes(self, attrs: Attrs, rank: int) -> tuple[int, ...]:
        return reduced_axes(self.name, () if attrs["axis"] is None else (attrs["axis"],), rank)

    samples = [
        case("vector", (37,), axis=0),
        case("all of an image", (2, 5, 4, 3), axis=None),
        case("all of a matrix, kept", (5, 4), axis=None, keepdim=True),
        case("classes", (3, 101), axis=-1, keepdim=True),
        case("first axis", (9, 5, 6), axis=0),
        case("channels of an image", (2, 21, 4, 3), axis=1),
        case("columns, last of equals", (2, 3, 4, 7), axis=3, last=True),
    ]


declare(
    Arg,
    "argmax",
    "The position of the largest element, the first of equal ones; a NaN counts as the largest.",
    onnx="ArgMax",
)
declare(
    Arg,
    "argmin",
    "The position of the smallest element, the first of equal ones; a NaN counts as the smallest.",
    onnx="ArgMin",
)


#: The ops that the "reduce" kernel computes.
REDUCED = tuple(op.name for op in REGISTRY.values() if isinstance(op, Reducing))
