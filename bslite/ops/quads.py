"""Numbers of 8 bits, four channels to a cell: what a product of integers reads at half of the memory."""

from collections.abc import Sequence

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops.core import Attr, Attrs, Case, ParamShapes, Shape
from bslite.ops.integer import Pairs


class Quads(Pairs):
    """``x - least`` rounded to 0 to 255, four by four along ``axis`` in cells of int32, zeros at the end."""

    name = "quads"
    arity = (1, 1)
    attrs = (*Pairs.attrs, Attr("least", a.integer(), 0, "the number that becomes 0"))
    samples = [
        Case("image", [(2, 18, 5, 7)]),
        Case("odd", [(1, 3, 9, 4)]),
        Case("many", [(1, 67, 3, 2)], attrs={"least": -2}),
        Case("volume", [(1, 5, 3, 2, 4)]),
        Case("vector", [(37,)], attrs={"axis": -1}),
        Case("tokens, odd", [(3, 4, 5, 19)], attrs={"axis": -1, "least": -128}),
        Case("groups", [(1, 20, 3, 4)], attrs={"groups": 4}),
    ]  # fmt: skip

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        if abs(attrs["least"]) > 2**14:
            raise SpecError(f"op 'quads': least is {attrs['least']}, expected a number of 15 bits")
        return super().shape(ins, params, attrs)
