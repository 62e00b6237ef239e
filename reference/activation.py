"""Activations, element by element: any shape in, the same shape out. NaN in, NaN out."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bslite.reference.registry import Array, reference


def erfc(x: Array) -> Array:
    """``1 - erf(x)``, without the cancellation for large x: the C library's, element by element."""
    return np.asarray(np.frompyfunc(math.erfc, 1, 1)(x)).astype(x.dtype)


@reference("gelu")
def gelu(x: Array, *, approximate: str) -> Array:
    """``x * Phi(x)``, or ``x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))``, arXiv 1606.08415.

    ``Phi(x) = erfc(-x / sqrt(2)) / 2``, the normal distribution function.
    """
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * erfc(x * -math.sqrt(0.5))


@reference("sigmoid")
def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))``; below zero as ``exp(x) / (1 + exp(x))``, so that exp never overflows."""
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


@reference("hardsigmoid")
def hardsigmoid(x: Array, *, alpha: float, beta: float) -> Array:
    """``min(max(alpha * x + beta, 0), 1)``; of ``x / 6 + 1/2`` as ``min(max(x + 3, 0), 6) / 6``."""
    if (alpha, beta) == (1 / 6, 0.5):
        return np.clip(x + 3, 0, 6) / 6
    return np.clip(x * alpha + beta, 0, 1)


@reference("softplus")
def softplus(x: Array, *, beta: float, threshold: float) -> Array:
    """``log(1 + exp(beta x)) / beta``, x where ``beta x > threshold``; the exponent never above zero."""
    z = x * beta
    return np.where(z > threshold, x, (np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))) / beta)


@reference("shrink")
def shrink(x: Array, *, lambd: float, bias: float) -> Array:
    """``x - bias`` if ``x > lambd``, ``x + bias`` if ``x < -lambd``, 0 between; NaN stays."""
    bias = x.dtype.type(bias)
    between = (x >= -lambd) & (x <= lambd)
    return np.where(between, x.dtype.type(0), np.where(x > 0, x - bias, x + bias))


#: Of one expression each. Where exp would overflow in a branch that is not taken, its argument is bounded.
FORMULAS: dict[str, Callable[..., Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x, *, negative_slope: np.where(x > 0, x, x * negative_slope),
    "elu": lambda x, *, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),  # arXiv 1511.07289
    "silu": lambda x, *, beta: x * sigmoid(x * beta),  # arXiv 1702.03118 and 1710.05941
    "tanh": lambda x: np.tanh(x),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,  # arXiv 1905.02244
    # ``flat`` is about the slope
    "clamp": lambda x, *, low, high, flat: np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high)),
    # QuantizeLinear of https://onnx.ai/onnx/operators, without the zero point
    "quantize": lambda x, *, scale, low: np.clip(np.round(x / x.dtype.type(scale)), low, low + 255),
    # arXiv 1706.02515
    "selu": lambda x, *, alpha, gamma: gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    # arXiv 1704.07483
    "celu": lambda x, *, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha)),
    "softsign": lambda x: np.asarray(x / (1 + np.abs(x))),
    # x * tanh(softplus(x)), arXiv 1908.08681
    "mish": lambda x: x * np.tanh(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))),
    # log(1 / (1 + exp(-x)))
    "logsigmoid": lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
    # NaN stays
    "threshold": lambda x, *, threshold, value: np.where(x <= threshold, x.dtype.type(value), x),
}
for _name, _formula in FORMULAS.items():
    reference(_name)(_formula)
