"""Picking by indices that are computed, or given as an input."""

import math
from collections.abc import Mapping, Sequence

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import BYTES, INTEGERS, Attr, Attrs, Case, Kind, Op, ParamShapes, Shape
from bslite.ops.values import Applied, Gradients, Value


class Indexing(Op):
    """What ops with data and indices share."""

    kind = Kind.MOVEMENT
    may_fail = True

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        if ins[1] not in INTEGERS:
            raise SpecError(f"op {self.name!r}: the indices (input 1) are {ins[1]}, expected int64 or int32")
        if len(ins) == 3 and ins[2] != ins[0]:
            raise SpecError(f"op {self.name!r}: the updates (input 2) are {ins[2]}, the input is {ins[0]}")
        if ins[0] in ("bool", *BYTES) and attrs.get("reduction", "none") != "none":
            raise SpecError(f"op {self.name!r}: reduction {attrs['reduction']!r} of {ins[0]}")
        return ins[0]

    def elements_read(self, index: int, ins: Sequence[Shape], out: Shape) -> int:
        whole = math.prod(ins[index])
        return min(whole, math.prod(out)) if index == 0 and len(ins) == 2 else whole

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return False


def index_case(
    label: str, x: Shape, indices: Shape, axis: int = 0, dtype: str = "float32", index: str = "int64"
) -> Case:
    """A sample case of picking along one axis."""
    n = x[axis]
    return Case(label, [x, indices], attrs={"axis": axis}, dtypes=[dtype, index], integers=(-n, n))


class Gather(Indexing):
    """``y[..., i, ...] = x[..., indices[i], ...]`` at ``axis``, which is replaced by the axes of ``indices``.

    Negative indices count from the end; one that is out of range is an error while running. An embedding is
    this along axis 0 of its table.
    """

    name = "gather"
    arity = (2, 2)
    attrs = (Attr("axis", a.integer(), 0),)
    torch_name = "index_select, embedding"
    onnx_name = "Gather"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, indices = ins
        axis = checks.axis(self.name, attrs["axis"], len(x))
        return (*x[:axis], *indices, *x[axis + 1 :])

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        x, indices = at.inputs
        axis, places = at.attrs["axis"] % len(x.shape), len(indices.shape)
        front = [axis, *(i for i in range(len(x.shape)) if i != axis)]
        rest = tuple(x.shape[i] for i in front[1:])
        order = [*range(axis, axis + places), *range(axis), *range(axis + places, len(grad.shape))]
        rows = grad.permute(*order).reshape(indices.size, *rest)
        zeros = grad.tape.constant(0.0).expand((x.shape[axis], *rest))
        made = zeros.op("scatter_nd", indices.reshape(indices.size, 1), rows, reduction="add")
        return {0: made.permute(*sorted(range(len(front)), key=front.__getitem__))}

    samples = [
        index_case("one number", (5,), ()),
        index_case("embedding", (37, 24), (3, 7)),
        index_case("one row of a table", (4, 33), (1,)),
        index_case("wide rows", (9, 2050), (5,), index="int32"),
        index_case("inner axis", (2, 7, 5), (4,), axis=1),
        index_case("last axis", (3, 4, 6), (2, 3), axis=-1),
        index_case("channels of an image", (2, 19, 4, 3), (5,), axis=1),
        index_case("columns of an image", (2, 3, 4, 7), (9,), axis=3),
        index_case("drop an axis", (2, 5, 4, 3), (), axis=2),
        index_case("integers", (6, 3), (4,), dtype="int64"),
        index_case("conditions", (6, 3), (4, 2), dtype="bool"),
    ]
