"""Ops that repeat elements, roll an axis, or keep a triangle."""

import math
from collections.abc import Sequence

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, Shape, case
from bslite.ops.values import Applied, Gradients, Value


class Expand(Op):
    """The input broadcast to ``shape``: axes of size 1 are repeated. It costs nothing: a stride of zero.

    ``shape`` may add axes in front; -1 keeps the input's size. A size of 1 keeps it too (as ONNX).
    """

    name = "expand"
    kind = Kind.MOVEMENT
    carries = True
    attrs = (Attr("shape", a.ints(-1), doc="-1: the input's size"),)
    torch_name = "expand"
    onnx_name = "Expand"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, want = ins[0], attrs["shape"]
        added = len(want) - len(x)
        if added < 0:
            raise SpecError(f"op 'expand': {list(want)} has fewer axes than the input {list(x)}")
        if any(d < 0 for d in want[:added]):
            raise SpecError(f"op 'expand': {list(want)} keeps a size that the input {list(x)} lacks")
        out = []
        for have, d in zip((1,) * added + x, want, strict=True):
            if d not in (-1, 1, have) and have != 1:
                raise SpecError(f"op 'expand': the input {list(x)} does not broadcast to {list(want)}")
            out.append(have if d == -1 or have != 1 else d)
        return tuple(out)

    def traffic(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return 0

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return len(attrs["shape"]) == ranks[0]

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        return {0: grad.sum_to(at.inputs[0].shape)}

    samples = [
        case("nothing", (2, 3), shape=(2, 3)),
        case("a number", (), shape=(2, 3)),
        case("rows", (3, 1), shape=(3, 4)),
        case("columns", (1, 4), shape=(3, -1)),
        case("new axes", (3, 1), shape=(2, 1, 3, 6)),
        case("a smaller shape", (3, 4), shape=(1, 1)),
        case("channels of an image", (2, 1, 4, 5), shape=(-1, 19, -1, -1)),
        case("a pixel", (2, 19, 1, 1), shape=(2, 19, 4, 5)),
        case("a batch of one", (1, 3, 4, 5), shape=(3, -1, -1, -1)),
        case("integers", (1, 4), shape=(3, 4), dtypes=["int64"]),
    ]


class Tile(Op):
    """The input ``repeats[i]`` times along axis i, one copy after the other."""

    name = "tile"
    kind = Kind.MOVEMENT
    carries = True
    attrs = (Attr("repeats", a.ints(1), doc="one for each axis"),)
    torch_name = "tile, repeat"
    onnx_name = "Tile"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, repeats = ins[0], attrs["repeats"]
        if len(repeats) != len(x):
            raise SpecError(f"op 'tile': repeats {list(repeats)} for the input {list(x)}, expected {len(x)}")
        return tuple(d * r for d, r in zip(x, repeats, strict=True))

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return attrs["repeats"][0] == 1

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        shape = at.inputs[0].shape
        apart = [n for pair in zip(at.attrs["repeats"], shape, strict=True) for n in pair]
        return {0: grad.reshape(*apart).sum(*range(0, len(apart), 2))}

    samples = [
        case("a number", (), repeats=()),
        case("once", (2, 3), repeats=(1, 1)),
        case("a vector", (5,), repeats=(3,)),
        case("both axes", (2, 3), repeats=(3, 2)),
        case("an image", (2, 19, 3, 2), repeats=(1, 1, 2, 3)),
        case("channels", (1, 5, 3, 2), repeats=(1, 4, 1, 1)),
        case("batch", (2, 3, 4), repeats=(3, 1, 1)),
        case("every axis of five", (2, 1, 3, 2, 2), repeats=(2, 3, 2, 1, 2)),
        case("conditions", (2, 3), repeats=(2, 2), dtypes=["bool"]),
    ]


class Roll(Op):
    """Elements moved on by ``shifts[i]`` along ``axes[i]``; those beyond the end come in at the start."""

    name = "roll"
    kind = Kind.MOVEMENT
    carries = True
    attrs = (Attr("shifts", a.ints(), doc="negative: back"), Attr("axes", a.ints(), doc="one for each shift"))
    torch_name = "roll"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        shifts, axes = attrs["shifts"], attrs["axes"]
        if len(shifts) != len(axes):
            raise SpecError(f"op 'roll': shifts {list(shifts)} for axes {list(axes)}, expected one for each")
        for axis in axes:
            checks.axis(self.name, axis, len(ins[0]))
        return ins[0]

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return all(axis % ranks[0] for axis in attrs["axes"])

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        return {0: grad.op("roll", shifts=[-n for n in at.attrs["shifts"]], axes=at.attrs["axes"])}

    samples = [
        case("nothing", (3, 4), shifts=(), axes=()),
        case("a vector", (7,), shifts=(2,), axes=(0,)),
        case("back", (3, 7), shifts=(-2,), axes=(-1,)),
        case("further than the axis is long", (3, 7), shifts=(16,), axes=(1,)),
        case("windows", (2, 6, 8, 12), shifts=(-3, -3), axes=(1, 2)),
        case("an image", (2, 19, 5, 4), shifts=(1, 2), axes=(2, 3)),
        case("one axis twice", (5, 2), shifts=(1, 3), axes=(0, 0)),
        case("all axes", (3, 4, 2), shifts=(1, 1, 1), axes=(0, 1, 2)),
        case("integers", (3, 4), shifts=(1,), axes=(0,), dtypes=["int64"]),
    ]


class Trilu(Op):
    """Zeros below (``upper``) or above the ``diagonal`` of the last two axes' matrices, the rest kept."""

    name = "trilu"
    kind = Kind.MOVEMENT
    carries = True
    attrs = (
        Attr("upper", a.boolean, True, "keep what is on and above the diagonal, else on and below"),
        Attr("diagonal", a.integer(), 0, "above the main one; negative: below"),
    )
    torch_name = "triu, tril"
    onnx_name = "Trilu"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        checks.rank_at_least(self.name, ins[0], 2, "matrices [..., M, N]")
        return ins[0]

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return ranks[0] > 2

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        return {0: grad.op("trilu", **at.attrs)}

    def traffic(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return 6 * math.prod(out)  # half of it read

    def cases(self) -> Sequence[Case]:
        return [
            Case(
                f"{'upper' if upper else 'lower'} of {list(shape)}, diagonal {diagonal}, {dtype}",
                [shape],
                attrs={"upper": upper, "diagonal": diagonal},
                dtypes=[dtype],
            )
            for upper in (True, False)
            for shape, diagonal, dtype in [
                ((1, 1), 0, "float32"),
                ((4, 5), 0, "int64"),
                ((5, 1), 1, "float32"),
                ((4, 37), 2, "float32"),
                ((2, 3, 37, 5), -3, "float32"),
                ((3, 4, 4), 9, "bool"),
                ((3, 4, 4), -9, "float32"),
            ]
        ]
