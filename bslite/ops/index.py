"""Picking and putting single elements or slices, at places that are computed; and the largest elements."""

from collections.abc import Mapping, Sequence
from typing import Any

from bslite.errors import SpecError, UnsupportedError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.along import AlongAxis
from bslite.ops.core import DTYPES, INTEGERS, Attr, Attrs, Case, Kind, Op, ParamShapes, Shape, holds
from bslite.ops.gather import Indexing, index_case
from bslite.ops.values import Applied, Gradients, Value

REDUCTIONS = ("none", "add", "mul", "max", "min")


class GatherElements(Indexing):
    """``y[i, j, k] = x[i, indices[i, j, k], k]``, along ``axis`` 1; y has the indices' shape.

    The indices may be fewer than x is long, along any axis. Negative ones count from the end.
    """

    name = "gather_elements"
    arity = (2, 2)
    attrs = (Attr("axis", a.integer(), 0),)
    torch_name = "gather, take_along_dim"
    onnx_name = "GatherElements"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        along_axis(self.name, ins[0], ins[1], attrs["axis"])
        return ins[1]

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        x, indices = at.inputs
        zeros = grad.tape.constant(0.0).expand(x.shape)
        return {0: zeros.op("scatter_elements", indices, grad, axis=at.attrs["axis"], reduction="add")}

    samples = [
        index_case("a vector", (5,), (9,), 0),
        index_case("rows", (5, 4), (3, 4), 0),
        index_case("columns", (5, 4), (5, 7), 1),
        index_case("a corner", (5, 4, 6), (2, 9, 3), 1),
        index_case("last axis", (2, 3, 19), (2, 3, 5), -1),
        index_case("an image", (2, 19, 4, 3), (2, 7, 4, 3), 1),
        index_case("integers", (6, 3), (4, 3), 0, "int64"),
        index_case("conditions", (6, 3), (4, 3), 0, "bool"),
    ]


class GatherND(Indexing):
    """Slices of x at coordinates: ``y[b, q] = x[b, indices[b, q, 0], indices[b, q, 1], ...]``.

    The last axis of the indices holds the coordinates; ``batch_dims`` axes in front are common to both.
    """

    name = "gather_nd"
    arity = (2, 2)
    attrs = (Attr("batch_dims", a.integer(0), 0),)
    torch_name = "index.Tensor"
    onnx_name = "GatherND"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, indices = ins
        b = attrs["batch_dims"]
        coordinates(self.name, x, indices, b)
        return (*indices[:-1], *x[b + indices[-1] :])

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        x, indices = at.inputs
        if at.attrs["batch_dims"]:
            raise UnsupportedError("op 'gather_nd' has no gradient for batch_dims above 0")
        zeros = grad.tape.constant(0.0).expand(x.shape)
        return {0: zeros.op("scatter_nd", indices, grad, reduction="add")}

    def cases(self) -> Sequence[Case]:
        def case(label: str, x: Shape, indices: Shape, batch: int = 0, dtype: str = "float32") -> Case:
            n = min(x[batch:])
            return Case(
                label, [x, indices], attrs={"batch_dims": batch}, dtypes=[dtype, "int64"], integers=(-n, n)
            )

        return [
            case("elements of a vector", (5,), (9, 1)),
            case("elements", (5, 4), (7, 2)),
            case("one element", (5, 4), (2,)),
            case("rows", (5, 33), (7, 1)),
            case("pixels", (4, 5, 6, 19), (2, 3, 2)),
            case("in each of a batch", (3, 5, 4), (3, 7, 1), 1),
            case("in two batches", (2, 3, 5, 4), (2, 3, 2), 2),
            case("integers", (5, 4), (7, 2), 0, "int32"),
        ]


def scatter_case(
    label: str, x: Shape, indices: Shape, updates: Shape, n: int, dtype: str = "float32", **attrs: Any
) -> Case:
    """A sample case of putting ``updates`` at indices from -n to n - 1."""
    return Case(label, [x, indices, updates], {}, attrs, [dtype, "int64", dtype], (-n, n))


class ScatterElements(Indexing):
    """x, with ``y[i, indices[i, j, k], k] = updates[i, j, k]`` along ``axis`` 1, in the order of j.

    With a ``reduction``, each update is added to, multiplied with, ... what is there, x's element included.
    """

    name = "scatter_elements"
    arity = (3, 3)
    attrs = (Attr("axis", a.integer(), 0), Attr("reduction", a.choice(*REDUCTIONS), "none"))
    torch_name = "scatter, scatter_add, scatter_reduce"
    onnx_name = "ScatterElements"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, indices, updates = ins
        along_axis(self.name, x, indices, attrs["axis"])
        if updates != indices:
            raise SpecError(f"op 'scatter_elements': updates {list(updates)} for indices {list(indices)}")
        return x

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        return _scattered(self.name, at, grad, "gather_elements", axis=at.attrs["axis"])

    samples = [
        scatter_case("a vector, none", (5,), (3,), (3,), 5, axis=0, reduction="none"),
        scatter_case("conditions, none", (6, 3), (4, 3), (4, 3), 6, "bool", axis=0, reduction="none"),
        *(
            scatter_case(
                f"{label}, {reduction}", x, indices, indices, x[axis], dtype, axis=axis, reduction=reduction
            )
            for reduction in REDUCTIONS
            for label, x, indices, axis, dtype in [
                ("columns", (5, 4), (5, 3), 1, "float32"),
                ("a corner, some twice", (3, 4, 6), (2, 9, 3), 1, "float32"),
                ("an image", (2, 19, 4, 3), (2, 7, 4, 3), 1, "float32"),
                ("integers", (6, 3), (4, 3), 0, "int64"),
            ]
        ),
    ]


class ScatterND(Indexing):
    """x, with slices replaced: ``y[indices[q, 0], indices[q, 1], ...] = updates[q]``, in the order of q.

    With a ``reduction``, each update is added to, multiplied with, ... what is there, x's element included.
    """

    name = "scatter_nd"
    arity = (3, 3)
    attrs = (Attr("reduction", a.choice(*REDUCTIONS), "none"),)
    torch_name = "index_put, index_add"
    onnx_name = "ScatterND"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, indices, updates = ins
        coordinates(self.name, x, indices, 0)
        want = (*indices[:-1], *x[indices[-1] :])
        if updates != want:
            raise SpecError(
                f"op 'scatter_nd': updates {list(updates)} for indices {list(indices)} into {list(x)}, "
                f"expected {list(want)}"
            )
        return x

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        return _scattered(self.name, at, grad, "gather_nd")

    samples = [
        scatter_case(
            f"{label}, {reduction}", x, indices, (*indices[:-1], *x[indices[-1] :]), min(x[: indices[-1]]),
            dtype, reduction=reduction,
        )
        for reduction in REDUCTIONS
        for label, x, indices, dtype in [
            ("elements", (9,), (4, 1), "float32"),
            ("one element", (5, 4), (2,), "float32"),
            ("rows, some twice", (5, 37), (7, 1), "float32"),
            ("pixels", (4, 5, 19), (2, 3, 2), "float32"),
            ("integers", (5, 4), (3, 2), "int64"),
        ]
    ]  # fmt: skip


def _scattered(op: str, at: Applied, grad: Value, gather: str, **attrs: Any) -> Gradients:
    """The gradients of putting; where updates meet, each gets that of the place, as in torch. Of the largest
    or smallest, all that are it share.
    """
    reduction, indices = at.attrs["reduction"], at.inputs[1]
    if reduction in ("max", "min"):
        x, _, updates = at.inputs
        kept = x.op("equal", at.output)
        put = updates.op("equal", at.output.op(gather, indices, **attrs))
        here, there = (hit.op("cast", to="float32") for hit in (kept, put))
        counts = here.op(op, indices, there, **{**at.attrs, "reduction": "add"})
        share = grad / counts
        return {0: kept.where(share, 0.0), 2: put.where(share.op(gather, indices, **attrs), 0.0)}
    if reduction not in ("none", "add"):
        raise UnsupportedError(f"op {op!r} has no gradient for reduction {reduction!r}")
    picked = grad.op(gather, indices, **attrs)
    if reduction == "add":
        return {0: grad, 2: picked}
    zeros = grad.tape.constant(0.0).expand(at.inputs[2].shape)
    return {0: grad.op(op, indices, zeros, **at.attrs), 2: picked}


def along_axis(op: str, x: Shape, indices: Shape, axis: int) -> int:
    """The axis, counted from 0. Raise unless the indices have x's rank and fit into its other axes."""
    axis = checks.axis(op, axis, len(x))
    if len(indices) != len(x) or any(
        i > n for d, (i, n) in enumerate(zip(indices, x, strict=True)) if d != axis
    ):
        raise SpecError(
            f"op {op!r}: indices {list(indices)} for the input {list(x)}; expected equal ranks, and sizes "
            f"no larger except at axis {axis}"
        )
    return axis


def coordinates(op: str, x: Shape, indices: Shape, batch: int) -> None:
    """Raise unless the last axis of ``indices`` holds coordinates into x behind its ``batch`` axes."""
    checks.rank_at_least(op, indices, batch + 1, "indices [..., coordinates]")
    if not 1 <= indices[-1] <= len(x) - batch or indices[:batch] != x[:batch]:
        raise SpecError(
            f"op {op!r}: indices {list(indices)} into {list(x)} with {batch} batch axes: expected equal "
            f"batches and 1 to {len(x) - batch} coordinates"
        )


class TopK(AlongAxis):
    """Indices along ``axis`` of the ``k`` largest (or smallest) elements, in order, of equal ones the first.

    NaN counts as the largest of all. The values are `gather_elements` of the same input.
    """

    name = "topk"
    kind = Kind.REDUCTION
    attrs = (Attr("k", a.integer(1)), Attr("axis", a.integer(), -1), Attr("largest", a.boolean, True))
    torch_name = "topk, sort, argsort"
    onnx_name = "TopK"

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        if ins[0] == "bool":
            raise SpecError("op 'topk': the input is bool, expected numbers")
        return "int64"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, k = ins[0], attrs["k"]
        axis = checks.axis(self.name, attrs["axis"], len(x))
        if k > x[axis]:
            raise SpecError(f"op 'topk': k={k} of {x[axis]} elements along axis {axis} of {list(x)}")
        return (*x[:axis], k, *x[axis + 1 :])

    def cases(self) -> Sequence[Case]:
        def case(label: str, x: Shape, k: int, dtype: str = "float32", **attrs: Any) -> Case:
            wide = (-(2**31), 2**31)  # no two alike, whose order torch leaves open
            return Case(label, [x], attrs={"k": k, **attrs}, dtypes=[dtype], integers=wide)

        return [
            case("of one", (1,), 1),
            case("classes", (3, 1000), 5),
            case("smallest", (3, 50), 4, largest=False),
            case("all of them", (2, 33), 33),
            case("many", (3, 1000), 100),
            case("many, smallest", (2, 257), 129, largest=False),
            case("first axis", (9, 4), 2, axis=0),
            case("channels", (2, 19, 4, 3), 3, axis=1, largest=False),
            case("integers", (4, 30), 6, "int64"),
            case("smallest integers", (4, 30), 6, "int32", largest=False),
        ]


class OneHot(Op):
    """``on`` at ``axis`` where the position along it is the index, ``off`` elsewhere.

    Negative indices count from the end; one out of range gives ``off`` everywhere, or is an error while
    running if ``strict``, as a negative one then is.
    """

    name = "one_hot"
    kind = Kind.MOVEMENT
    attrs = (
        Attr("depth", a.integer(1)),
        Attr("axis", a.integer(), -1, "of the output"),
        Attr("on", a.real, 1.0),
        Attr("off", a.real, 0.0),
        Attr("to", a.choice(*DTYPES), "float32", "dtype of the output"),
        Attr("strict", a.boolean, False),
    )
    may_fail = True
    torch_name = "one_hot"
    onnx_name = "OneHot"

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        if ins[0] not in INTEGERS:
            raise SpecError(f"op 'one_hot': the indices are {ins[0]}, expected int64 or int32")
        for value in (attrs["on"], attrs["off"]):
            if not holds(attrs["to"], value):
                raise SpecError(f"op 'one_hot': the value {value} does not fit {attrs['to']}")
        return str(attrs["to"])

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x = ins[0]
        axis = checks.axis(self.name, attrs["axis"], len(x) + 1)
        return (*x[:axis], attrs["depth"], *x[axis:])

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return ranks[0] > 0 and attrs["axis"] % (ranks[0] + 1) != 0

    def cases(self) -> Sequence[Case]:
        def case(label: str, x: Shape, depth: int, low: int, **attrs: Any) -> Case:
            attrs = {"depth": depth, **attrs}
            return Case(label, [x], attrs=attrs, dtypes=["int64"], integers=(low, depth))

        return [
            case("a number", (), 4, 0),
            case("classes", (7,), 10, -10),
            case("out of range", (20,), 3, -9),
            case("first axis", (2, 3), 5, 0, axis=0),
            case("channels", (2, 3, 4), 6, 0, axis=1, on=2.5, off=-1.0),
            case("integers", (2, 3), 5, 0, to="int64", strict=True),
            case("conditions", (2, 3), 5, 0, axis=-2, to="bool"),
        ]
