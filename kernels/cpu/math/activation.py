"""Activations of lines of pixels: of a value, or in place of what a kernel has just written, while it is in
L1.

In stores ReLU and ReLU6 are not these: they are clamp bounds of the microkernels. Every function takes ``(x,
y, pixels, x_col, y_col, channels, params)``: addresses of what is read and written, count, byte strides,
count, and the address of two float32 cells ``a, b`` (negative slope, alpha, ...). Channels beyond the count
are left alone.
"""

import functools

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts import activation as contract
from bslite.kernels.contracts.cpu.epilogue import Pointwise
from bslite.kernels.contracts.table import complete
from bslite.kernels.cpu.math import unary, veclog, vecmath
from bslite.kernels.cpu.runtime.compile import Kernel, caller, makes
from bslite.kernels.cpu.vector.lanes import negated, select_eq
from bslite.kernels.cpu.vector.memory import load, load_first, load_scalar, store, store_first
from bslite.kernels.cpu.vector.scaling import quotient
from bslite.kernels.cpu.vector.simd import BYTES, LANES, divide, fma, rint, select_lt, splat, vabs, vmax, vmin

IN_L1 = 4096  # elements that a kernel stores before the activation reads them again
call_activation = caller(7)
f = np.float32


@register_jitable
def _hardsigmoid(x, a, b):
    # As in torch: relu6(x + 3) / 6. Times the float nearest to 1/6 it would be too large by 3e-8 in every
    # layer, which adds up.
    return divide(
        vmin(splat(f(6.0)), vmax(splat(f(0.0)), x + splat(f(3.0)))), splat(f(6.0)), splat(f(1.0 / 6))
    )


@register_jitable
def _gelu(x, a, b):
    # x times the normal distribution up to x: where x < 0, its tail; else x less as much. Nothing cancels.
    away = vabs(vmin(splat(f(16.0)), x))
    return fma(negated(away), vecmath.normal_tail(away), vmax(splat(f(0.0)), x))


@register_jitable
def _gelu_tanh(x, a, b):
    # (1 + tanh(z)) / 2 = sigmoid(2 z), in which nothing cancels
    inner = fma(splat(f(0.044715)) * x * x, x, x) * splat(f(1.5957691216057308))
    return vecmath.times_sigmoid(x, inner)


@register_jitable
def _softplus(x, a, b):
    z = x * a
    return select_lt(b, z, x, veclog.softplus(z) / a)


@register_jitable
def _mish(x, a, b):
    # tanh(log(1 + e)) = ((1 + e)**2 - 1) / ((1 + e)**2 + 1), written so that nothing cancels
    e = vecmath.exp(vmin(splat(f(20.0)), x))
    n = e * (e + splat(f(2.0)))
    return x * quotient(n, n + splat(f(2.0)))


@register_jitable
def _shrink(x, a, b):
    zero = splat(f(0.0))
    outside = select_lt(x, zero - a, x + b, select_eq(x, x, zero, x))
    return select_lt(a, x, x - b, outside)


_FORMULAS = {
    "identity": lambda x, a, b: x,
    "relu": lambda x, a, b: vmax(splat(f(0.0)), x),
    "relu6": lambda x, a, b: vmin(splat(f(6.0)), vmax(splat(f(0.0)), x)),
    "leaky_relu": lambda x, a, b: select_lt(x, splat(f(0.0)), x * a, x),
    "elu": lambda x, a, b: select_lt(x, splat(f(0.0)), vecmath.expm1_negative(x) * a, x),
    "silu": lambda x, a, b: vecmath.times_sigmoid(x, x),
    "hardswish": lambda x, a, b: x * _hardsigmoid(x, a, b),
    "hardsigmoid_any": lambda x, a, b: vmin(splat(f(1.0)), vmax(splat(f(0.0)), fma(x, a, b))),
    "swish": lambda x, a, b: vecmath.times_sigmoid(x, x * a),
    "clamp": lambda x, a, b: vmin(b, vmax(a, x)),
    "quantize": lambda x, a, b: vmin(b + splat(f(255.0)), vmax(b, rint(x / a))),
    "selu": lambda x, a, b: b * select_lt(x, splat(f(0.0)), vecmath.expm1_negative(x) * a, x),
    "celu": lambda x, a, b: select_lt(x, splat(f(0.0)), vecmath.expm1_negative(x / a) * a, x),
    "softsign": lambda x, a, b: x / (splat(f(1.0)) + vabs(x)),
    "threshold": lambda x, a, b: select_lt(a, x, x, select_eq(x, x, b, x)),
}
FUNCTIONS = complete({
    **{name: register_jitable(formula) for name, formula in _FORMULAS.items()},
    "gelu_none": _gelu,
    "gelu_tanh": _gelu_tanh,
    "hardsigmoid": _hardsigmoid,
    "softplus": _softplus,
    "mish": _mish,
    "shrink": _shrink,
    **unary.FUNCTIONS,
}, contract.FUNCTIONS, "CPU")  # fmt: skip


@makes(Pointwise)
@functools.cache
def activation(name: str) -> Kernel:
    """The kernel of one activation."""
    function = FUNCTIONS[name]

    def apply(x, y, pixels, x_col, y_col, channels, params):
        a, b = splat(load_scalar(params)), splat(load_scalar(params + 8))
        if x_col == 4 * channels and y_col == x_col:  # pixels without gaps are one
            channels *= pixels
            pixels = 1
        whole = channels // LANES
        rest = channels - whole * LANES
        for _ in range(pixels):
            for block in range(whole):
                at = block * BYTES
                store(y + at, function(load(x + at), a, b))
            if rest:
                at = whole * BYTES
                store_first(y + at, function(load_first(x + at, rest, f(0.0)), a, b), rest)
            x += x_col
            y += y_col

    return Kernel(apply, f"activation_{name}", 7)


@register_jitable
def activate(function, line, pixels, col, channels, params):
    """Calls the kernel of a function in place."""
    call_activation(function, line, line, pixels, col, col, channels, params)
