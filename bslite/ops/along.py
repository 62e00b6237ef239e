"""What ops along one axis share."""

from collections.abc import Sequence

from bslite.ops import checks
from bslite.ops.core import Attrs, Op, ParamShapes, Shape


class AlongAxis(Op):
    """Base of the ops that work along their attribute ``axis``; the output has the input's shape."""

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        checks.axis(self.name, attrs["axis"], len(ins[0]))
        return ins[0]

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return attrs["axis"] % ranks[0] != 0
