"""Functions of one element, of any shape. A transcendental function counts as one flop."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from bslite.ops import attrs as a
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, Shape, declare
from bslite.ops.training.slopes import SLOPES
from bslite.ops.values import Applied, Gradients, Value


class Activation(Op):
    """Base of the activations: the input's shape, each element on its own."""

    kind = Kind.POINTWISE
    cost = 1
    variants: ClassVar[Sequence[dict[str, Any]]] = ({},)  # attributes the cases try
    #: The derivative, of the element, the result and the attributes; of bools: where it is 1, else 0. None
    #: for those of `SLOPES`, and those that have none.
    slope: ClassVar["staticmethod[[Value, Value, Attrs], Value | float] | None"] = None

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        name = f"{self.name}_tanh" if at.attrs.get("approximate") == "tanh" else self.name
        if (known := SLOPES.get(name)) and at.attrs.get("beta", 1.0) == 1.0:
            return {0: grad.op("activation_grad", at.output if known.by_value else at.inputs[0], of=name)}
        if self.slope is None:
            return super().vjp(at, grad)
        slope = self.slope(at.inputs[0], at.output, at.attrs)
        if isinstance(slope, Value) and slope.dtype == "bool":
            return {0: slope.where(grad, 0.0)}
        return {0: grad * slope} if slope else {}

    def cases(self) -> Sequence[Case]:
        shapes: dict[str, Shape] = {
            "image": (2, 19, 9, 7),
            "one element": (1, 1),
            "vector": (301,),
            "tokens": (3, 5, 24),
            "volume": (1, 2, 3, 4, 5),
        }
        return [
            Case(", ".join([label, *(f"{k}={v}" for k, v in attrs.items())]), [shape], attrs=attrs)
            for attrs in self.variants
            for label, shape in shapes.items()
        ]


def _within(x: Value, attrs: Attrs) -> Value:
    low, high = attrs["low"], attrs["high"]
    return (x > low) & (x < high) if attrs["flat"] else (x >= low) & (x <= high)


def _square(x: Value) -> Value:
    return x * x


def _silu(x: Value, beta: float) -> Value:
    s = (x * beta).op("sigmoid")
    return s * (1.0 + x * beta * (1.0 - s))


def _mish(x: Value) -> Value:
    t = x.op("softplus").op("tanh")
    return t + x * (1.0 - t * t) * x.op("sigmoid")


declare(Activation, "relu", "``max(x, 0)``.", onnx="Relu")
declare(Activation, "relu6", "``min(max(x, 0), 6)``.", onnx="Clip", cost=2)
declare(
    Activation,
    "leaky_relu",
    "``x`` above zero, ``negative_slope * x`` below.",
    onnx="LeakyRelu",
    cost=2,
    attrs=(Attr("negative_slope", a.real, 0.01),),
    variants=({}, {"negative_slope": 0.2}, {"negative_slope": 0.0}, {"negative_slope": -1.5}),
    slope=lambda x, y, a: (x > 0.0).where(1.0, x.tape.constant(a["negative_slope"])),
)
declare(
    Activation,
    "elu",
    "``x`` above zero, ``alpha * (exp(x) - 1)`` below.",
    onnx="Elu",
    cost=3,
    attrs=(Attr("alpha", a.real, 1.0),),
    variants=({}, {"alpha": 0.3}),
    slope=lambda x, y, a: (x > 0.0).where(1.0, y + a["alpha"]),
)
declare(
    Activation,
    "gelu",
    '``x`` times the normal distribution function of ``x``, exact ("none") or its "tanh" approximation.',
    onnx="Gelu",
    cost=5,
    attrs=(Attr("approximate", a.choice("none", "tanh"), "none"),),
    variants=({}, {"approximate": "tanh"}),
)
declare(
    Activation,
    "silu",
    "``x * sigmoid(beta * x)``, also called swish.",
    onnx="Swish",
    cost=4,
    attrs=(Attr("beta", a.real, 1.0),),
    variants=({}, {"beta": 1.702}, {"beta": -0.5}),
    slope=lambda x, y, a: _silu(x, a["beta"]),
)
declare(
    Activation,
    "sigmoid",
    "``1 / (1 + exp(-x))``.",
    onnx="Sigmoid",
    cost=3,
    slope=lambda x, y, a: y * (1.0 - y),
)
declare(Activation, "tanh", "Hyperbolic tangent.", onnx="Tanh", slope=lambda x, y, a: 1.0 - y * y)
declare(Activation, "hardswish", "``x * min(max(x + 3, 0), 6) / 6``.", onnx="HardSwish", cost=5)
declare(
    Activation,
    "hardsigmoid",
    "``min(max(alpha * x + beta, 0), 1)``; as it stands, ``min(max(x + 3, 0), 6) / 6``.",
    onnx="HardSigmoid",
    cost=4,
    attrs=(Attr("alpha", a.real, 1 / 6), Attr("beta", a.real, 0.5)),
    variants=({}, {"alpha": 0.2}, {"alpha": -0.3, "beta": 0.25}),
    slope=lambda x, y, a: ((y > 0.0) & (y < 1.0)).where(x.tape.constant(a["alpha"]), 0.0),
)
declare(
    Activation,
    "clamp",
    "``min(max(x, low), high)``, either bound infinite where there is none; ``high`` where they cross.",
    onnx="Clip",
    cost=2,
    attrs=(
        Attr("low", a.real, -math.inf),
        Attr("high", a.real, math.inf),
        Attr("flat", a.boolean, False, "slope 0 at the bounds, as hardtanh"),
    ),
    variants=(
        {"low": -1.0, "high": 1.5},
        {"low": 0.5},
        {"high": -0.5},
        {},
        {"low": 2.0, "high": 1.0},
        {"low": -1.0, "high": 1.0, "flat": True},
    ),
    slope=lambda x, y, a: _within(x, a),
)
declare(
    Activation,
    "quantize",
    "``min(max(round(x / scale), low), low + 255)``, halves to even: steps of 8 bits, around zero.",
    onnx="QuantizeLinear",
    cost=4,
    attrs=(Attr("scale", a.positive, 1.0), Attr("low", a.real, -128.0)),
    variants=({}, {"scale": 0.03125}, {"scale": 0.0117, "low": -3.0}),
    slope=lambda x, y, a: 0.0,
)
declare(
    Activation,
    "selu",
    "``gamma`` times elu with ``alpha``.",
    onnx="Selu",
    cost=4,
    attrs=(
        Attr("alpha", a.real, 1.6732632423543772848170429916717),
        Attr("gamma", a.real, 1.0507009873554804934193349852946),
    ),
    variants=({}, {"alpha": 0.5, "gamma": 2.0}),
    slope=lambda x, y, a: (x > 0.0).where(x.tape.constant(a["gamma"]), y + a["alpha"] * a["gamma"]),
)
declare(
    Activation,
    "celu",
    "``x`` above zero, ``alpha * (exp(x / alpha) - 1)`` below.",
    onnx="Celu",
    cost=4,
    attrs=(Attr("alpha", a.positive, 1.0),),
    variants=({}, {"alpha": 0.4}),
    slope=lambda x, y, a: (x > 0.0).where(1.0, (x / a["alpha"]).op("exp")),
)
declare(
    Activation,
    "softplus",
    "``log(1 + exp(beta * x)) / beta``; x itself where ``beta * x`` is above ``threshold``.",
    onnx="Softplus",
    cost=5,
    attrs=(Attr("beta", a.positive, 1.0), Attr("threshold", a.real, 20.0)),
    variants=({}, {"beta": 2.5}, {"beta": 0.5, "threshold": 1.0}),
    slope=lambda x, y, a: (x * a["beta"] > a["threshold"]).where(1.0, (x * a["beta"]).op("sigmoid")),
)
declare(
    Activation,
    "softsign",
    "``x / (1 + |x|)``.",
    onnx="Softsign",
    cost=3,
    slope=lambda x, y, a: _square(1.0 / (x.op("abs") + 1.0)),
)
declare(
    Activation, "mish", "``x * tanh(log(1 + exp(x)))``.", onnx="Mish", cost=5, slope=lambda x, y, a: _mish(x)
)
declare(Activation, "logsigmoid", "``-log(1 + exp(-x))``.", cost=4, slope=lambda x, y, a: (-x).op("sigmoid"))
declare(
    Activation,
    "threshold",
    "``x`` above ``threshold``, else ``value``.",
    onnx="ThresholdedRelu",
    attrs=(Attr("threshold", a.real), Attr("value", a.real, 0.0)),
    variants=({"threshold": 1.0}, {"threshold": -0.5, "value": 3.0}),
    slope=lambda x, y, a: x > a["threshold"],
)
declare(
    Activation,
    "shrink",
    "``x - bias`` above ``lambd``, ``x + bias`` below ``-lambd``, else zero: hardshrink, softshrink.",
    onnx="Shrink",
    torch="hardshrink, softshrink",
    cost=2,
    attrs=(Attr("lambd", a.real_between(0), 0.5), Attr("bias", a.real, 0.0)),
    variants=({}, {"lambd": 1.5, "bias": 1.5}, {"lambd": 0.0, "bias": -0.5}),
    slope=lambda x, y, a: x.op("abs") > a["lambd"],
)
