"""The ops that compute nothing: dropout at inference, values without a gradient, constants."""

from collections.abc import Mapping, Sequence

from bslite.ops import attrs as a
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, Shape
from bslite.ops.values import Applied, Gradients, Value


class Dropout(Op):
    """The identity: dropout does nothing at inference."""

    name = "dropout"
    kind = Kind.POINTWISE
    attrs = (Attr("p", a.real_between(0, 1), 0.5, "probability in training; unused here"),)
    torch_name = "dropout"
    onnx_name = "Dropout"

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        return {0: grad}

    samples = [
        Case("image", [(2, 3, 5, 4)]),
        Case("features", [(3, 17)], attrs={"p": 0.2}),
        Case("always", [(4,)], attrs={"p": 1}),
    ]


class StopGradient(Op):
    """The identity, through which no gradient passes."""

    name = "stop_gradient"
    kind = Kind.POINTWISE
    carries = True
    torch_name = "detach"

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        return {}

    samples = [
        Case("image", [(2, 3, 5, 4)]),
        Case("a number", [()]),
        Case("integers", [(3, 17)], dtypes=["int64"]),
    ]


#: The ops whose value is their input.
IDENTITIES = ("dropout", "stop_gradient")


class Constant(Op):
    """A stored value of any shape, ``()`` included; the one op without inputs."""

    name = "constant"
    kind = Kind.SOURCE
    arity = (0, 0)
    params = {"value": True}
    torch_name = "tensor"
    onnx_name = "Constant"

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        return params["value"]

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        return params["value"]

    def traffic(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return 0  # it is there; who reads it moves it

    def with_values(self, ins: Sequence[Value], params: Mapping[str, Value], attrs: Attrs) -> Value:
        return params["value"]

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        return {"value": grad}

    samples = [
        Case("a number", [], {"value": ()}),
        Case("per channel", [], {"value": (1, 5, 1, 1)}),
        Case("class token", [], {"value": (1, 1, 24)}),
        Case("image", [], {"value": (2, 3, 4, 5)}),
    ]
