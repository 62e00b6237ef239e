"""Softmax and its logarithm along one axis."""

from bslite.ops import attrs as a
from bslite.ops.along import AlongAxis
from bslite.ops.core import Attr, Attrs, Case, Kind, ParamShapes, RowMap, declare
from bslite.ops.values import Applied, Gradients, Value


class SoftmaxBase(AlongAxis):
    """Base of both: the input's shape, each element divided by a sum along ``axis``."""

    kind = Kind.REDUCTION
    attrs = (Attr("axis", a.integer(), -1),)
    cost = 5  # maximum, subtract, exp, add, divide (or subtract)

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        axis, y = at.attrs["axis"], at.output
        if self.name == "log_softmax":
            return {0: grad - y.op("exp") * grad.sum(axis, keepdim=True)}
        return {0: y * (grad - (grad * y).sum(axis, keepdim=True))}

    def rows(self, params: ParamShapes, attrs: Attrs) -> RowMap | None:
        return RowMap() if attrs["axis"] == 1 else None  # over the channels of one pixel

    samples = [
        Case("one class", [(3, 1)]),
        Case("classes", [(4, 37)]),
        Case("many classes", [(1, 1000)]),
        Case("a vector", [(9,)], attrs={"axis": 0}),
        Case("attention", [(2, 3, 7, 7)]),
        Case("channels", [(2, 21, 5, 4)], attrs={"axis": 1}),
        Case("rows", [(2, 3, 6, 4)], attrs={"axis": -2}),
        Case("first axis", [(5, 4, 3)], attrs={"axis": 0}),
    ]


declare(SoftmaxBase, "softmax", "``exp(x) / sum(exp(x))`` along ``axis``.", onnx="Softmax")
declare(SoftmaxBase, "log_softmax", "``x - log(sum(exp(x)))`` along ``axis``.", onnx="LogSoftmax")
