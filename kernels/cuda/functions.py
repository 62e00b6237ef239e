"""Activations of one value, chosen by a compile-time code: what is not chosen is not in the machine code."""

from __future__ import annotations

import math

import numpy as np

from bslite.kernels.cuda.device import device_function

#: Activation -> its code in `activate`.
CODES = {"identity": 0, "relu": 1, "clamp": 2, "leaky_relu": 3, "sigmoid": 4, "tanh": 5, "silu": 6}

f = np.float32


@device_function
def larger(x, y):
    """The larger of two values, NaN if one is (as torch has it; PTX's max is the other number)."""
    return x if x > y or x != x else y


@device_function
def smaller(x, y):
    """The smaller of two values, NaN if one is."""
    return x if x < y or x != x else y


@device_function
def activate(code, x, a, b):
    """Activation ``code`` of x; ``a, b`` are its parameters (clamp bounds, negative slope, ...)."""
    if code == 1:
        return larger(x, f(0.0))
    if code == 2:
        return smaller(larger(x, a), b)
    if code == 3:
        return x if x >= f(0.0) or x != x else x * a
    if code == 4:
        return f(1.0) / (f(1.0) + f(math.exp(-x)))
    if code == 5:
        return f(math.tanh(x))
    if code == 6:
        return x / (f(1.0) + f(math.exp(-x)))
    return x
