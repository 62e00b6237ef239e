"""Builders of ONNX's activations."""

from __future__ import annotations

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


@onnx_op("Sigmoid", "Tanh", "HardSwish", "Softsign", "Mish")
def plain(s: Site, x: Operand) -> Operand:
    return s.emit(s.op_type.lower(), x)


@onnx_op("Softplus")
def softplus(s: Site, x: Operand) -> Operand:
    return s.emit("softplus", x, threshold=1e30)


@onnx_op("LeakyRelu")
def leaky_relu(s: Site, x: Operand, *, alpha: float) -> Operand:
    return s.emit("leaky_relu", x, negative_slope=alpha)


@onnx_op("Elu", "Celu")
def elu(s: Site, x: Operand, *, alpha: float) -> Operand:
    return s.emit(s.op_type.lower(), x, alpha=alpha)


@onnx_op("Selu")
def selu(s: Site, x: Operand, *, alpha: float, gamma: float) -> Operand:
    return s.emit("selu", x, alpha=alpha, gamma=gamma)


@onnx_op("Gelu")
def gelu(s: Site, x: Operand, *, approximate: str) -> Operand:
    return s.emit("gelu", x, approximate=approximate)


@onnx_op("Swish")
def swish(s: Site, x: Operand, *, alpha: float) -> Operand:
    return s.emit("silu", x, beta=alpha)


@onnx_op("HardSigmoid")
def hard_sigmoid(s: Site, x: Operand, *, alpha: float, beta: float) -> Operand:
    return s.emit("hardsigmoid", x, alpha=alpha, beta=beta)


@onnx_op("ThresholdedRelu")
def thresholded_relu(s: Site, x: Operand, *, alpha: float) -> Operand:
    return s.emit("threshold", x, threshold=alpha, value=0.0)


@onnx_op("Shrink")
def shrink(s: Site, x: Operand, *, bias: float, lambd: float) -> Operand:
    return s.emit("shrink", x, bias=bias, lambd=lambd)


@onnx_op("Clip", since=6)
def clip_by_attributes(s: Site, x: Operand, *, min: float, max: float) -> Operand:
    most = float(np.finfo(np.float32).max)
    return clamp(s, x, None if min <= -most else min, None if max >= most else max)


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
