"""Builders of ONNX's activations."""

from typing import Any

import numpy as np

from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.arith import is_known
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Operand, Value
from bslite.spec import Array


@onnx_op("Relu")
def relu(s: Site, x: Operand) -> Operand:
    if not isinstance(x, Value):
        return s.compute(lambda a: np.maximum(a, a.dtype.type(0)), x)
    return s.emit("relu", x)


#: Operator -> the op, and for each of the operator's attributes the op's.
ACTIVATIONS: dict[str, tuple[str, dict[str, str]]] = {
    **{name: (name.lower(), {}) for name in ("Sigmoid", "Tanh", "HardSwish", "Softsign", "Mish")},
    "PRelu": ("prelu", {}),
    "LeakyRelu": ("leaky_relu", {"alpha": "negative_slope"}),
    "Elu": ("elu", {"alpha": "alpha"}),
    "Celu": ("celu", {"alpha": "alpha"}),
    "Selu": ("selu", {"alpha": "alpha", "gamma": "gamma"}),
    "Gelu": ("gelu", {"approximate": "approximate"}),
    "Swish": ("silu", {"alpha": "beta"}),
    "HardSigmoid": ("hardsigmoid", {"alpha": "alpha", "beta": "beta"}),
    "ThresholdedRelu": ("threshold", {"alpha": "threshold"}),
    "Shrink": ("shrink", {"bias": "bias", "lambd": "lambd"}),
}


@onnx_op(*(name for name in ACTIVATIONS if name != "PRelu"))
@onnx_op("PRelu", since=7)
def activation(s: Site, *xs: Operand, **given: Any) -> Operand:
    op, names = ACTIVATIONS[s.op_type]
    return s.emit(op, *xs, **{ours: given[theirs] for theirs, ours in names.items()})


@onnx_op("Softplus")
def softplus(s: Site, x: Operand) -> Operand:
    return s.emit("softplus", x, threshold=1e30)


@onnx_op("Clip")
def clip_by_attributes(s: Site, x: Operand, *, min: float | None, max: float | None) -> Operand:
    most = float(np.finfo(np.float32).max)
    low, high = (-most if min is None else min), (most if max is None else max)
    return clamp(s, x, None if low <= -most else low, None if high >= most else high)


@onnx_op("Clip", since=11)
def clip(s: Site, x: Operand, low: Operand | None = None, high: Operand | None = None) -> Operand:
    bounds = [v for v in (low, high) if v is not None]
    if not bounds:
        return x
    if is_known(x, *bounds):
        return s.compute(lambda a, *b: _clip(a, b[0] if low else None, b[-1] if high else None), x, *bounds)
    if x.dtype != "float32" or not is_known(*bounds):
        y = x
        if low is not None:
            y = (s.emit if high is None else s.inner)("maximum", y, low)
        return y if high is None else s.emit("minimum", y, high)
    least = None if low is None else s.number(low, "its min")
    most = None if high is None else s.number(high, "its max")
    return clamp(s, x, least, most)


def _clip(a: Array, low: Array | None, high: Array | None) -> Array:
    a = a if low is None else np.maximum(a, low)
    return a if high is None else np.minimum(a, high)


def clamp(s: Site, x: Operand, low: float | None, high: float | None) -> Operand:
    """``min(max(x, low), high)``."""
    if low is None and high is None:
        return x
    if low == 0 and high in (6, None):
        return s.emit("relu6" if high else "relu", x)
    bounds: dict[str, Any] = {k: v for k, v in (("low", low), ("high", high)) if v is not None}
    return s.emit("clamp", x, **bounds)
