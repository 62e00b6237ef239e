"""Activations applied in place to a line of pixels that a kernel has just written, while it is in L1.

ReLU and ReLU6 never come here: they are clamp bounds in the microkernels' store. Every function takes
``(line, pixels, col, channels, params)``: address, count, byte stride, count, and the address of two
float32 cells
``a, b`` (negative slope, alpha, ...). Channels beyond the count are left alone.
"""

from __future__ import annotations

import functools

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu import vecmath
from bslite.kernels.cpu.compile import Kernel, caller
from bslite.kernels.cpu.simd import (
    BYTES,
    LANES,
    fma,
    load,
    load_first,
    load_scalar,
    select_lt,
    splat,
    store,
    store_first,
    vmax,
    vmin,
)

call_activation = caller(5)
f = np.float32


@register_jitable
def _identity(x, a, b):
    return x


@register_jitable
def _relu(x, a, b):
    return vmax(splat(f(0.0)), x)


@register_jitable
def _relu6(x, a, b):
    return vmin(splat(f(6.0)), vmax(splat(f(0.0)), x))


@register_jitable
def _leaky_relu(x, a, b):
    return select_lt(x, splat(f(0.0)), x * a, x)


@register_jitable
def _elu(x, a, b):
    return select_lt(x, splat(f(0.0)), vecmath.expm1_negative(x) * a, x)


@register_jitable
def _sigmoid(x, a, b):
    return vecmath.sigmoid(x)


@register_jitable
def _silu(x, a, b):
    return x * vecmath.sigmoid(x)


@register_jitable
def _tanh(x, a, b):
    return vecmath.tanh(x)


@register_jitable
def _gelu_erf(x, a, b):
    return splat(f(0.5)) * x * (splat(f(1.0)) + vecmath.erf(x * splat(f(0.70710678118654752))))


@register_jitable
def _gelu_tanh(x, a, b):
    inner = fma(splat(f(0.044715)) * x * x, x, x) * splat(f(0.79788456080286536))
    return splat(f(0.5)) * x * (splat(f(1.0)) + vecmath.tanh(inner))


@register_jitable
def _hardsigmoid(x, a, b):
    # as torch: relu6(x + 3) / 6
    return vmin(splat(f(6.0)), vmax(splat(f(0.0)), x + splat(f(3.0)))) * splat(f(1.0 / 6))


@register_jitable
def _hardswish(x, a, b):
    return x * _hardsigmoid(x, a, b)


FUNCTIONS = {
    "identity": _identity,
    "relu": _relu,
    "relu6": _relu6,
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "tanh": _tanh,
    "gelu_none": _gelu_erf,
    "gelu_tanh": _gelu_tanh,
    "hardsigmoid": _hardsigmoid,
    "hardswish": _hardswish,
}


@functools.cache
def activation(name: str) -> Kernel:
    """The in-place kernel of one activation."""
    function = FUNCTIONS[name]

    def apply(line, pixels, col, channels, params):
        a, b = splat(load_scalar(params)), splat(load_scalar(params + 8))
        whole = channels // LANES
        rest = channels - whole * LANES
        for _ in range(pixels):
            place = line
            for _ in range(whole):
                store(place, function(load(place), a, b))
                place += BYTES
            if rest:
                store_first(place, function(load_first(place, rest, f(0.0)), a, b), rest)
            line += col

    return Kernel(apply, f"activation_{name}", 5)
