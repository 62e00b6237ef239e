"""Arithmetic of complex numbers, which are pairs: a last axis of two holds real and imaginary part."""

from collections.abc import Sequence

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import Attr, Attrs, Kind, Op, ParamShapes, Shape, case
from bslite.ops.values import Applied, Gradients, Value


class ComplexMul(Op):
    """Product of two complex numbers, of the conjugate of the second where ``conj``: pairs along a last axis
    of two, broadcast along the others.
    """

    name = "complex_mul"
    kind = Kind.REDUCTION
    arity = (2, 2)
    cost = 3  # of each part: two products and a sum
    attrs = (Attr("conj", a.boolean, False),)
    torch_name = "mul, of complex numbers"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        for i, x in enumerate(ins):
            if x[-1:] != (2,):
                raise SpecError(f"op 'complex_mul': input {i} is {list(x)}, expected pairs, a last axis of 2")
        return checks.broadcast(self.name, ins)

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return len(set(ranks)) == 1 and ranks[0] > 1

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        x, y = at.inputs
        if at.attrs["conj"]:
            made = grad.op("complex_mul", y), x.op("complex_mul", grad, conj=True)
        else:
            made = grad.op("complex_mul", y, conj=True), grad.op("complex_mul", x, conj=True)
        return {0: made[0].sum_to(x.shape), 1: made[1].sum_to(y.shape)}

    samples = [
        case("two numbers", (2,), (2,)),
        case("rows", (3, 37, 2), (3, 37, 2)),
        case("conjugate", (3, 37, 2), (3, 37, 2), conj=True),
        case("a filter", (2, 5, 19, 2), (5, 19, 2)),
        case("a number for each row", (4, 20, 2), (4, 1, 2), conj=True),
        case("the other way round", (4, 1, 2), (4, 20, 2), conj=True),
        case("both widen", (3, 1, 5, 2), (4, 1, 2)),
        case("large", (2, 3, 4, 600, 2), (3, 1, 600, 2)),
    ]
