"""Picking by indices that are computed, or given as an input."""

from collections.abc import Mapping, Sequence

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import INTEGERS, Attr, Attrs, Case, Kind, Op, ParamShapes, Shape


class Gather(Op):
    """``y[..., i, ...] = x[..., indices[i], ...]`` at ``axis``, which is replaced by the axes of ``indices``.

    Negative indices count from the end; one that is out of range is an error while running. An embedding is
    this along axis 0 of its table.
    """

    name = "gather"
    kind = Kind.MOVEMENT
    arity = (2, 2)
    attrs = (Attr("axis", a.integer(), 0),)
    may_fail = True
    torch_name = "index_select, embedding"
    onnx_name = "Gather"

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        if ins[1] not in INTEGERS:
            raise SpecError(f"op 'gather': the indices (input 1) are {ins[1]}, expected int64 or int32")
        return ins[0]

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, indices = ins
        axis = checks.axis(self.name, attrs["axis"], len(x))
        return (*x[:axis], *indices, *x[axis + 1 :])

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return False

    def cases(self) -> Sequence[Case]:
        def case(
            label: str, x: Shape, indices: Shape, axis: int = 0, dtype: str = "float32", index: str = "int64"
        ) -> Case:
            n = x[axis]
            return Case(label, [x, indices], attrs={"axis": axis}, dtypes=[dtype, index], integers=(-n, n))

        return [
            case("one number", (5,), ()),
            case("embedding", (37, 24), (3, 7)),
            case("one row of a table", (4, 33), (1,)),
            case("wide rows", (9, 2050), (5,), index="int32"),
            case("inner axis", (2, 7, 5), (4,), axis=1),
            case("last axis", (3, 4, 6), (2, 3), axis=-1),
            case("channels of an image", (2, 19, 4, 3), (5,), axis=1),
            case("columns of an image", (2, 3, 4, 7), (9,), axis=3),
            case("drop an axis", (2, 5, 4, 3), (), axis=2),
            case("integers", (6, 3), (4,), dtype="int64"),
            case("conditions", (6, 3), (4, 2), dtype="bool"),
        ]
