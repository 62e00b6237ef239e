"""Gradients of activations: functions ``(g, x)`` of two registers, ``g * f'(x)``.

Where a slope is 0 or 1 the gradient is chosen, not multiplied: NaN and infinities of what is not chosen stay
out. Of NaN the slope of relu is 1, as in torch, of relu6 0.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.elementwise import SLOPES
from bslite.kernels.contracts.table import complete
from bslite.kernels.cpu.math import vecmath
from bslite.kernels.cpu.vector.lanes import select_eq
from bslite.kernels.cpu.vector.simd import fma, select_lt, splat

f = np.float32


@register_jitable
def _relu(g, x):
    zero = splat(f(0.0))
    return select_lt(zero, x, g, select_eq(x, x, zero, g))


@register_jitable
def _relu6(g, x):
    zero = splat(f(0.0))
    return select_lt(zero, x, select_lt(x, splat(f(6.0)), g, zero), zero)


@register_jitable
def _silu(g, x):
    one, s = splat(f(1.0)), vecmath.sigmoid(x)
    return g * (s * fma(x, one - s, one))


@register_jitable
def _hardswish(g, x):
    inner = g * fma(x, splat(f(1.0 / 3.0)), splat(f(0.5)))
    beyond = select_eq(x, x, g, inner)  # NaN is neither
    return select_lt(x, splat(f(-3.0)), splat(f(0.0)), select_lt(x, splat(f(3.0)), inner, beyond))


SLOPE = complete({
    "relu": _relu,
    "relu6": _relu6,
    "silu": _silu,
    "hardswish": _hardswish,
}, SLOPES, "CPU")  # fmt: skip
