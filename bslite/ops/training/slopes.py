"""Gradients through activations, one op of two values, of which one pass takes both."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, Shape, case
from bslite.ops.values import Applied, Gradients, Value

FLAT = 30.0  # beyond it the slopes of gelu do not change


class Slope(NamedTuple):
    """How the gradient of an activation is told: by its value, or by its element."""

    by_value: bool = False
    bend: Callable[[Value], Value] | None = None  # the second derivative; None: zero


def _bend_of_silu(x: Value) -> Value:
    return x.op("sigmoid") * (-x).op("sigmoid") * (2.0 - x * (x * 0.5).op("tanh"))


def _bend_of_hardswish(x: Value) -> Value:
    return ((x > -3.0) & (x <= 3.0)).where(x.tape.constant(1 / 3), 0.0)


def _bend_of_gelu(x: Value) -> Value:
    x = x.op("clamp", low=-FLAT, high=FLAT)
    return (x * x * -0.5).op("exp") * (2.0 - x * x) / math.sqrt(2 * math.pi)


def _bend_of_gelu_tanh(x: Value) -> Value:
    x = x.op("clamp", low=-FLAT, high=FLAT)
    a, b = math.sqrt(8 / math.pi), 0.044715  # gelu(x) = x s(z), s the sigmoid of z = a (x + b x^3)
    z, dz = a * x * (1.0 + b * x * x), a * (1.0 + 3 * b * x * x)
    slope = z.op("sigmoid") * (-z).op("sigmoid")
    return slope * (2.0 * dz - x * dz * dz * (z * 0.5).op("tanh") + (6 * a * b) * x * x)


#: By the activation's name, with what it approximates by, if it does.
SLOPES: Mapping[str, Slope] = {
    "relu": Slope(by_value=True),
    "relu6": Slope(by_value=True),
    "silu": Slope(bend=_bend_of_silu),
    "hardswish": Slope(bend=_bend_of_hardswish),
    "gelu": Slope(bend=_bend_of_gelu),
    "gelu_tanh": Slope(bend=_bend_of_gelu_tanh),
}


class ActivationGrad(Op):
    """The gradient of an activation by its element x: ``g`` times the slope at x, inputs g and x.

    relu and relu6 take their value as well as x. Where a slope is 0, so is the result; of NaN relu's is 1.
    """

    name = "activation_grad"
    kind = Kind.POINTWISE
    arity = (2, 2)
    attrs = (Attr("of", a.choice(*SLOPES), ..., "the activation"),)
    cost = 2

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        checks.param_shape(self.name, "the gradient", ins[0], ins[1], "(that of the element)")
        return ins[1]

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        g, x = at.inputs
        made: dict[int | str, Value] = {0: grad.op("activation_grad", x, of=at.attrs["of"])}
        bend = SLOPES[at.attrs["of"]].bend
        return made | {1: grad * g * bend(x)} if bend else made

    def cases(self) -> Sequence[Case]:
        return [
            case(f"{label} of {of}", shape, shape, of=of)
            for of in SLOPES
            for label, shape in {"image": (2, 19, 9, 7), "vector": (301,), "tokens": (3, 5, 24)}.items()
        ]
