"""Ops that move or copy elements and compute nothing. All take any rank and negative axes."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.along import AlongAxis
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, RowMap, Shape, case
from bslite.ops.values import Applied, Gradients, Piece, Value


class Concat(AlongAxis):
    """Inputs side by side along ``axis``; all their other sizes are equal."""

    name = "concat"
    kind = Kind.MOVEMENT
    carries = True
    arity = (1, 1 << 14)  # what unfolds a signal in an ONNX file joins thousands
    attrs = (Attr("axis", a.integer()),)
    torch_name = "cat"
    onnx_name = "Concat"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        first = ins[0]
        axis = checks.axis(self.name, attrs["axis"], len(first))
        for i, x in enumerate(ins):
            if len(x) != len(first) or x[:axis] + x[axis + 1 :] != first[:axis] + first[axis + 1 :]:
                raise SpecError(
                    f"op 'concat': input {i} is {list(x)}, input 0 is {list(first)}; "
                    f"expected them to differ at axis {axis} only"
                )
        return (*first[:axis], sum(x[axis] for x in ins), *first[axis + 1 :])

    def rows(self, params: ParamShapes, attrs: Attrs) -> RowMap | None:
        return RowMap() if attrs["axis"] == 1 else None

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        axis = at.attrs["axis"] % len(grad.shape)
        stops = list(itertools.accumulate(x.shape[axis] for x in at.inputs))
        pairs = zip([0, *stops], stops, strict=False)
        return {i: grad.sliced(axis, start, stop) for i, (start, stop) in enumerate(pairs)}

    samples = [
        Case("one input", [(2, 3, 4, 5)], attrs={"axis": 1}),
        Case("channels", [(2, 3, 4, 5), (2, 7, 4, 5)], attrs={"axis": 1}),
        Case("four branches", [(1, c, 5, 5) for c in (16, 3, 1, 20)], attrs={"axis": 1}),
        Case("rows", [(2, 3, 4, 5), (2, 3, 1, 5)], attrs={"axis": 2}),
        Case("last axis", [(2, 3, 4), (2, 3, 2), (2, 3, 1)], attrs={"axis": -1}),
        Case("batch", [(1, 4), (3, 4)], attrs={"axis": 0}),
        Case("vectors", [(5,), (1,)], attrs={"axis": 0}),
    ]


class RepeatBatch(Op):
    """``x [1, ...]`` once for every index along axis 0 of ``like``, whose elements are not read."""

    name = "repeat_batch"
    kind = Kind.MOVEMENT
    arity = (2, 2)
    torch_name = "expand"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, like = ins
        checks.rank_at_least(self.name, x, 1, "an input [1, ...]")
        checks.rank_at_least(self.name, like, 1, "a second input [N, ...]")
        if x[0] != 1:
            raise SpecError(f"op 'repeat_batch' takes an input [1, ...], got {list(x)}")
        return (like[0], *x[1:])

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        return ins[0]

    def traffic(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return 4 * (math.prod(ins[0]) + math.prod(out))

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        return {0: grad.sum(0, keepdim=True)}

    samples = [
        Case("once", [(1, 3), (1, 2)]),
        Case("a token", [(1, 1, 12), (3, 4, 12)]),
        Case("an image", [(1, 3, 4, 5), (2,)]),
        Case("indices", [(1, 4), (3, 1)], dtypes=["int64", "int64"]),
    ]


class Reshaped(Op):
    """Base of ops that keep the elements and their order, and give them another shape."""

    kind = Kind.MOVEMENT
    carries = True

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        return {0: grad.reshape(*at.inputs[0].shape)}


class Flatten(Reshaped):
    """The axes ``start_axis`` to ``end_axis``, both included, made one."""

    name = "flatten"
    attrs = (Attr("start_axis", a.integer(), 1), Attr("end_axis", a.integer(), -1))
    torch_name = "flatten"
    onnx_name = "Flatten"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x = ins[0]
        start = checks.axis(self.name, attrs["start_axis"], len(x))
        end = checks.axis(self.name, attrs["end_axis"], len(x))
        if start > end:
            raise SpecError(f"op 'flatten': start_axis {start} comes after end_axis {end} in {list(x)}")
        return (*x[:start], math.prod(x[start : end + 1]), *x[end + 1 :])

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return attrs["start_axis"] % ranks[0] != 0

    samples = [
        Case("image", [(2, 5, 3, 4)]),
        Case("one pixel", [(3, 17, 1, 1)]),
        Case("flat already", [(3, 7)]),
        Case("everything", [(2, 3, 4)], attrs={"start_axis": 0}),
        Case("rows and columns", [(2, 3, 4, 5)], attrs={"start_axis": 2, "end_axis": 3}),
        Case("inner axes", [(2, 3, 4, 5)], attrs={"start_axis": -3, "end_axis": -2}),
    ]


class Reshape(Reshaped):
    """The same elements, row-major, in another shape; -1 is inferred, 0 copies the input's size (as ONNX).

    Below -1 the size of any axis of the input is copied: -2 that of axis 0, -3 that of axis 1.
    """

    name = "reshape"
    attrs = (Attr("shape", a.ints(), doc="at most one -1"),)
    torch_name = "reshape"
    onnx_name = "Reshape"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, given = ins[0], attrs["shape"]
        if given.count(-1) > 1:
            raise SpecError(f"op 'reshape': shape {list(given)} has more than one -1")
        axes = [i if d == 0 else -2 - d for i, d in enumerate(given)]
        if any(axis >= len(x) for axis in axes):
            raise SpecError(f"op 'reshape': shape {list(given)} copies a size that the input {list(x)} lacks")
        out = [x[axis] if axis >= 0 else d for axis, d in zip(axes, given, strict=True)]
        have, known = math.prod(x), math.prod(d for d in out if d != -1)
        if -1 in out and have % known == 0:
            out[out.index(-1)] = have // known
        if math.prod(out) != have:
            raise SpecError(
                f"op 'reshape': the input {list(x)} has {have} elements, which do not fill {list(given)}"
            )
        return tuple(out)

    samples = [
        case("flatten", (2, 3, 4), shape=(2, 12)),
        case("same shape", (2, 3), shape=(2, 3)),
        case("inferred", (2, 6, 4), shape=(3, -1)),
        case("batch kept, rest inferred", (2, 3, 4, 5), shape=(0, -1)),
        case("split the channels", (2, 6, 3, 5), shape=(0, 2, -1, 3, 5)),
        case("two sizes kept", (2, 3, 4, 5), shape=(0, 0, -1)),
        case("a size of one added", (4, 5), shape=(4, 1, 5, 1)),
        case("a size of one before free ones", (4, 5), shape=(1, -2, -3)),
        case("rows to sequences", (8, 3, 5), shape=(-1, 4, -3, 5)),
        case("to a number", (1, 1), shape=()),
        case("from a number", (), shape=(1, 1)),
    ]


def _order(value: Any) -> tuple[int, ...]:
    """A permutation of the axes, negative ones counted from the end."""
    order = a.ints()(value)
    axes = tuple(d + len(order) if d < 0 else d for d in order)
    if sorted(axes) != list(range(len(order))):
        raise ValueError(f"expected each of the axes 0 to {len(order) - 1} once")
    return axes


class Permute(Op):
    """Axes reordered: axis ``i`` of the output is axis ``order[i]`` of the input."""

    name = "permute"
    kind = Kind.MOVEMENT
    carries = True
    attrs = (Attr("order", _order),)
    torch_name = "permute"
    onnx_name = "Transpose"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, order = ins[0], attrs["order"]
        if len(order) != len(x):
            raise SpecError(
                f"op 'permute': order {list(order)} has {len(order)} axes, the input {list(x)} has {len(x)}"
            )
        return tuple(x[d] for d in order)

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return attrs["order"][0] % ranks[0] == 0

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        order = at.attrs["order"]
        return {0: grad.permute(*sorted(range(len(order)), key=order.__getitem__))}

    samples = [
        Case("to channels last", [(2, 3, 4, 5)], attrs={"order": (0, 2, 3, 1)}),
        Case("to channels first", [(2, 4, 5, 3)], attrs={"order": (0, -1, 1, 2)}),
        Case("transpose", [(4, 7)], attrs={"order": (1, 0)}),
        Case("heads", [(2, 9, 3, 8)], attrs={"order": (0, 2, 1, 3)}),
        Case("shuffle", [(1, 2, 4, 3, 3)], attrs={"order": (0, 2, 1, 3, 4)}),
        Case("nothing", [(2, 3, 4)], attrs={"order": (0, 1, 2)}),
        Case("squares", [(2, 19, 35)], attrs={"order": (0, 2, 1)}),
        Case("squares of pairs", [(19, 11, 2)], attrs={"order": (1, 0, 2)}),
        Case("lines of pairs", [(3, 9, 4, 2)], attrs={"order": (2, 1, 0, 3)}),
        Case("lines of threes", [(5, 17, 3)], attrs={"order": (1, 0, 2)}),
        Case("lines of fives", [(3, 10, 5)], attrs={"order": (1, 0, 2)}),
        Case("lines of twenties", [(3, 4, 20)], attrs={"order": (1, 0, 2)}),
        Case("groups of threes", [(12, 3, 20)], attrs={"order": (0, 2, 1)}),
        Case("eight axes", [(2, 2, 3, 2, 2, 2, 2, 3)], attrs={"order": (6, 1, 4, 3, 2, 5, 0, 7)}),
    ]


class Slice(AlongAxis):
    """``x[start:stop:step]`` along ``axis``, by Python's rules; the result may not be empty.

    So a negative step goes backwards, from a ``start`` that has to be given: -1 for the last element.
    """

    name = "slice"
    kind = Kind.MOVEMENT
    carries = True
    attrs = (
        Attr("axis", a.integer()),
        Attr("start", a.integer(), 0, "negative: from the end"),
        Attr("stop", a.optional(a.integer()), None, "negative: from the end; None: to the last in its way"),
        Attr("step", a.nonzero, 1, "negative: backwards"),
    )
    torch_name = "slice, flip"
    onnx_name = "Slice"

    def elements_read(self, index: int, ins: Sequence[Shape], out: Shape) -> int:
        return math.prod(out)

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, (start, stop, step) = ins[0], (attrs["start"], attrs["stop"], attrs["step"])
        axis = checks.axis(self.name, attrs["axis"], len(x))
        size = len(range(*slice(start, stop, step).indices(x[axis])))
        if not size:
            raise SpecError(f"op 'slice': {start}:{stop}:{step} at axis {axis} of {list(x)} is empty")
        return (*x[:axis], size, *x[axis + 1 :])

    def rows(self, params: ParamShapes, attrs: Attrs) -> RowMap | None:
        if attrs["axis"] == 2 and attrs["start"] >= 0 and attrs["step"] > 0:
            return RowMap(attrs["step"], -attrs["start"], 1)
        return RowMap() if attrs["axis"] == 1 else None

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        shape = at.inputs[0].shape
        axis = at.attrs["axis"] % len(shape)
        places = range(*slice(at.attrs["start"], at.attrs["stop"], at.attrs["step"]).indices(shape[axis]))
        if places.step < 0:
            grad, places = grad.op("slice", axis=axis, start=-1, step=-1), places[::-1]
        step = places.step if len(places) > 1 else 1
        if step > 1:  # zeros between: each as one of ``step``
            split = (*grad.shape[: axis + 1], 1, *grad.shape[axis + 1 :])
            after = [0] * len(split)
            after[axis + 1] = step - 1
            wide = grad.reshape(*split).padded([0] * len(split), after)
            grad = wide.reshape(*shape[:axis], len(places) * step, *shape[axis + 1 :])
        return {0: Piece(grad, axis, places[0], shape[axis])}

    samples = [
        case("all of it", (2, 3), axis=1),
        case("first half of the channels", (2, 6, 3, 4), axis=1, stop=3),
        case("second half of the channels", (2, 6, 3, 4), axis=1, start=3),
        case("every other row", (1, 3, 7, 5), axis=2, start=1, step=2),
        case("every other column", (1, 3, 5, 8), axis=-1, step=2),
        case("the last", (2, 5, 4), axis=1, start=-1),
        case("all but two", (2, 5, 4), axis=-2, start=1, stop=-1),
        case("beyond the end", (3, 4), axis=0, start=-9, stop=99),
        case("step over the end", (7,), axis=0, start=2, step=10),
        case("backwards, every other", (2, 9, 4), axis=1, start=7, stop=0, step=-2),
        case("rows upside down", (2, 3, 5, 4), axis=2, start=-1, step=-1),
        case("columns mirrored", (2, 19, 5, 4), axis=3, start=-1, step=-1),
        case("channels backwards", (2, 19, 5, 4), axis=1, start=-1, step=-1),
        case("batch backwards", (3, 5), axis=0, start=99, step=-1),
        case("backwards over the start", (3, 5), axis=1, start=3, stop=-99, step=-3),
    ]
