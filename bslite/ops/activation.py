"""Functions of one element, of any shape. A transcendental function counts as one flop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from bslite.ops import attrs as a
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, RowMap, Shape


class Activation(Op):
    """Base of the activations: the input's shape, each element on its own."""

    kind = Kind.POINTWISE
    cost: ClassVar[int] = 1  # flops per element
    variants: ClassVar[Sequence[dict[str, Any]]] = ({},)  # attributes the cases try

    @classmethod
    def flops(cls, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return cls.cost * math.prod(out)

    @classmethod
    def rows(cls, params: ParamShapes, attrs: Attrs) -> RowMap:
        return RowMap()

    @classmethod
    def cases(cls) -> Sequence[Case]:
        shapes: dict[str, Shape] = {
            "image": (2, 19, 9, 7),
            "one element": (1, 1),
            "vector": (301,),
            "tokens": (3, 5, 24),
            "volume": (1, 2, 3, 4, 5),
        }
        return [
            Case(", ".join([label, *(f"{k}={v}" for k, v in attrs.items())]), [shape], attrs=attrs)
            for attrs in cls.variants
            for label, shape in shapes.items()
        ]


class Relu(Activation):
    """``max(x, 0)``."""

    name = "relu"
    torch_name = "relu"
    onnx_name = "Relu"


class Relu6(Activation):
    """``min(max(x, 0), 6)``."""

    name = "relu6"
    cost = 2
    torch_name = "relu6"
    onnx_name = "Clip"


class LeakyRelu(Activation):
    """``x`` above zero, ``negative_slope * x`` below."""

    name = "leaky_relu"
    cost = 2
    attrs = (Attr("negative_slope", a.real, 0.01),)
    variants = ({}, {"negative_slope": 0.2}, {"negative_slope": 0.0}, {"negative_slope": -1.5})
    torch_name = "leaky_relu"
    onnx_name = "LeakyRelu"


class Elu(Activation):
    """``x`` above zero, ``alpha * (exp(x) - 1)`` below."""

    name = "elu"
    cost = 3
    attrs = (Attr("alpha", a.real, 1.0),)
    variants = ({}, {"alpha": 0.3})
    torch_name = "elu"
    onnx_name = "Elu"


class Gelu(Activation):
    """``x`` times the normal distribution function of ``x``, exact ("none") or its "tanh" approximation."""

    name = "gelu"
    cost = 5
    attrs = (Attr("approximate", a.choice("none", "tanh"), "none"),)
    variants = ({}, {"approximate": "tanh"})
    torch_name = "gelu"
    onnx_name = "Gelu"


class Silu(Activation):
    """``x * sigmoid(beta * x)``, also called swish."""

    name = "silu"
    cost = 4
    attrs = (Attr("beta", a.real, 1.0),)
    variants = ({}, {"beta": 1.702}, {"beta": -0.5})
    torch_name = "silu"
    onnx_name = "Swish"


class Sigmoid(Activation):
    """``1 / (1 + exp(-x))``."""

    name = "sigmoid"
    cost = 3
    torch_name = "sigmoid"
    onnx_name = "Sigmoid"


class Tanh(Activation):
    """Hyperbolic tangent."""

    name = "tanh"
    torch_name = "tanh"
    onnx_name = "Tanh"


class HardSwish(Activation):
    """``x * min(max(x + 3, 0), 6) / 6``."""

    name = "hardswish"
    cost = 5
    torch_name = "hardswish"
    onnx_name = "HardSwish"


class HardSigmoid(Activation):
    """``min(max(alpha * x + beta, 0), 1)``; as it stands, ``min(max(x + 3, 0), 6) / 6``."""

    name = "hardsigmoid"
    cost = 4
    attrs = (Attr("alpha", a.real, 1 / 6), Attr("beta", a.real, 0.5))
    variants = ({}, {"alpha": 0.2}, {"alpha": -0.3, "beta": 0.25})
    torch_name = "hardsigmoid"
    onnx_name = "HardSigmoid"


class Clamp(Activation):
    """``min(max(x, low), high)``, either bound infinite where there is none; ``high`` where they cross."""

    name = "clamp"
    cost = 2
    attrs = (Attr("low", a.real, -math.inf), Attr("high", a.real, math.inf))
    variants = ({"low": -1.0, "high": 1.5}, {"low": 0.5}, {"high": -0.5}, {}, {"low": 2.0, "high": 1.0})
    torch_name = "clamp"
    onnx_name = "Clip"


class Selu(Activation):
    """``gamma`` times elu with ``alpha``."""

    name = "selu"
    cost = 4
    attrs = (
        Attr("alpha", a.real, 1.6732632423543772848170429916717),
        Attr("gamma", a.real, 1.0507009873554804934193349852946),
    )
    variants = ({}, {"alpha": 0.5, "gamma": 2.0})
    torch_name = "selu"
    onnx_name = "Selu"


class Celu(Activation):
    """``x`` above zero, ``alpha * (exp(x / alpha) - 1)`` below."""

    name = "celu"
    cost = 4
    attrs = (Attr("alpha", a.positive, 1.0),)
    variants = ({}, {"alpha": 0.4})
    torch_name = "celu"
    onnx_name = "Celu"


class Softplus(Activation):
    """``log(1 + exp(beta * x)) / beta``; x itself where ``beta * x`` is above ``threshold``."""

    name = "softplus"
    cost = 5
    attrs = (Attr("beta", a.positive, 1.0), Attr("threshold", a.real, 20.0))
    variants = ({}, {"beta": 2.5}, {"beta": 0.5, "threshold": 1.0})
    torch_name = "softplus"
    onnx_name = "Softplus"


class Softsign(Activation):
    """``x / (1 + |x|)``."""

    name = "softsign"
    cost = 3
    torch_name = "softsign"
    onnx_name = "Softsign"


class Mish(Activation):
    """``x * tanh(log(1 + exp(x)))``."""

    name = "mish"
    cost = 5
    torch_name = "mish"
    onnx_name = "Mish"


class LogSigmoid(Activation):
    """``-log(1 + exp(-x))``."""

    name = "logsigmoid"
    cost = 4
    torch_name = "logsigmoid"


class Threshold(Activation):
    """``x`` above ``threshold``, else ``value``."""

    name = "threshold"
    attrs = (Attr("threshold", a.real), Attr("value", a.real, 0.0))
    variants = ({"threshold": 1.0}, {"threshold": -0.5, "value": 3.0})
    torch_name = "threshold"
    onnx_name = "ThresholdedRelu"


class Shrink(Activation):
    """``x - bias`` above ``lambd``, ``x + bias`` below ``-lambd``, else zero: hardshrink, softshrink."""

    name = "shrink"
    cost = 2
    attrs = (Attr("lambd", a.real_between(0), 0.5), Attr("bias", a.real, 0.0))
    variants = ({}, {"lambd": 1.5, "bias": 1.5}, {"lambd": 0.0, "bias": -0.5})
    torch_name = "hardshrink, softshrink"
    onnx_name = "Shrink"
