"""Activations, element by element: any shape in, the same shape out. NaN in, NaN out."""

import math

import numpy as np

from bslite.reference.registry import Array, reference


def erfc(x: Array) -> Array:
    """``1 - erf(x)``, without the cancellation for large x: the C library's, element by element."""
    return np.asarray(np.frompyfunc(math.erfc, 1, 1)(x)).astype(x.dtype)


@reference("relu")
def relu(x: Array) -> Array:
    """``max(x, 0)``."""
    return np.maximum(x, 0)


@reference("relu6")
def relu6(x: Array) -> Array:
    """``min(max(x, 0), 6)``."""
    return np.clip(x, 0, 6)


@reference("leaky_relu")
def leaky_relu(x: Array, *, negative_slope: float) -> Array:
    """``x`` if ``x > 0`` else ``negative_slope * x``."""
    return np.where(x > 0, x, x * negative_slope)


@reference("elu")
def elu(x: Array, *, alpha: float) -> Array:
    """``x`` if ``x > 0`` else ``alpha * (exp(x) - 1)``, arXiv 1511.07289."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))  # clamped: no overflow in the unused branch


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


@reference("silu")
def silu(x: Array, *, beta: float) -> Array:
    """``x * sigmoid(beta * x)``, arXiv 1702.03118 and 1710.05941."""
    return x * sigmoid(x * beta)


@reference("tanh")
def tanh(x: Array) -> Array:
    """Hyperbolic tangent."""
    return np.tanh(x)


@reference("hardswish")
def hardswish(x: Array) -> Array:
    """``x * min(max(x + 3, 0), 6) / 6``, arXiv 1905.02244."""
    return x * np.clip(x + 3, 0, 6) / 6


@reference("hardsigmoid")
def hardsigmoid(x: Array, *, alpha: float, beta: float) -> Array:
    """``min(max(alpha * x + beta, 0), 1)``; of ``x / 6 + 1/2`` as ``min(max(x + 3, 0), 6) / 6``."""
    if (alpha, beta) == (1 / 6, 0.5):
        return np.clip(x + 3, 0, 6) / 6
    return np.clip(x * alpha + beta, 0, 1)


@reference("clamp")
def clamp(x: Array, *, low: float, high: float) -> Array:
    """``min(max(x, low), high)``."""
    return np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high))


@reference("selu")
def selu(x: Array, *, alpha: float, gamma: float) -> Array:
    """``gamma * (x if x > 0 else alpha * (exp(x) - 1))``, arXiv 1706.02515."""
    return gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


@reference("celu")
def celu(x: Array, *, alpha: float) -> Array:
    """``x if x > 0 else alpha * (exp(x / alpha) - 1)``, arXiv 1704.07483."""
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha))


@reference("softplus")
def softplus(x: Array, *, beta: float, threshold: float) -> Array:
    """``log(1 + exp(beta x)) / beta``, x where ``beta x > threshold``; the exponent never above zero."""
    z = x * beta
    return np.where(z > threshold, x, (np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))) / beta)


@reference("softsign")
def softsign(x: Array) -> Array:
    """``x / (1 + |x|)``."""
    return np.asarray(x / (1 + np.abs(x)))


@reference("mish")
def mish(x: Array) -> Array:
    """``x * tanh(softplus(x))``, arXiv 1908.08681."""
    return x * np.tanh(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


@reference("logsigmoid")
def logsigmoid(x: Array) -> Array:
    """``log(1 / (1 + exp(-x)))``."""
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


@reference("threshold")
def threshold(x: Array, *, threshold: float, value: float) -> Array:
    """``value`` where ``x <= threshold``, else ``x``, NaN too."""
    return np.where(x <= threshold, x.dtype.type(value), x)


@reference("shrink")
def shrink(x: Array, *, lambd: float, bias: float) -> Array:
    """``x - bias`` if ``x > lambd``, ``x + bias`` if ``x < -lambd``, 0 between; NaN stays."""
    bias = x.dtype.type(bias)
    between = (x >= -lambd) & (x <= lambd)
    return np.where(between, x.dtype.type(0), np.where(x > 0, x - bias, x + bias))
