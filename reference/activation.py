"""Activations, element by element: any shape in, the same shape out. NaN in, NaN out."""

from __future__ import annotations

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
def silu(x: Array) -> Array:
    """``x * sigmoid(x)``, arXiv 1702.03118."""
    return x * sigmoid(x)


@reference("tanh")
def tanh(x: Array) -> Array:
    """Hyperbolic tangent."""
    return np.tanh(x)


@reference("hardswish")
def hardswish(x: Array) -> Array:
    """``x * min(max(x + 3, 0), 6) / 6``, arXiv 1905.02244."""
    return x * np.clip(x + 3, 0, 6) / 6


@reference("hardsigmoid")
def hardsigmoid(x: Array) -> Array:
    """``min(max(x + 3, 0), 6) / 6``."""
    return np.clip(x + 3, 0, 6) / 6
