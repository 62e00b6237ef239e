"""Gradients of activations: functions ``(g, x)`` of two registers, ``g * f'(x)``.

Where a slope is 0 or 1 the gradient is chosen, not multiplied: NaN and infinities of what is not chosen stay
out. Of NaN the slope of relu is 1, as in torch, of relu6 0.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.elementwise import SLOPES
from bslite.kernels.contracts.table import complete
from bslite.kernels.cpu.math import vecmath
from bslite.kernels.cpu.vector.lanes import negated, select_eq
from bslite.kernels.cpu.vector.simd import fma, select_lt, splat, vabs

f = np.float32
LOG2E = float(np.log2(np.e))


@register_jitable
def _relu(g, x):
    zero = splat(f(0.0))
    return select_lt(zero, x, g, select_eq(x, x, zero, g))


@register_jitable
def _relu6(g, x):
    zero = splat(f(0.0))
    return select_lt(zero, x, select_lt(x, splat(f(6.0)), g, zero), zero)


@register_jitable
def _sigmoid(z):
    """The sigmoid and its slope ``s (1 - s)``, by the smaller of s and ``1 - s``, so that nothing cancels."""
    one, p = splat(f(1.0)), vecmath.sigmoid(negated(vabs(z)))
    return select_lt(splat(f(0.0)), z, one - p, p), p * (one - p)


@register_jitable
def _silu(g, x):
    s, slope = _sigmoid(x)
    return g * fma(x, slope, s)


@register_jitable
def _hardswish(g, x):
    inner = g * fma(x, splat(f(1.0 / 3.0)), splat(f(0.5)))
    beyond = select_eq(x, x, g, inner)  # NaN is neither
    above = splat(np.nextafter(f(-3.0), f(0.0)))  # -3 itself has the slope 0
    return select_lt(x, above, splat(f(0.0)), select_lt(x, splat(f(3.0)), inner, beyond))


@register_jitable
def _gelu(g, x):
    """``g (F(x) + x F'(x))``, F the normal distribution function."""
    zero, one = splat(f(0.0)), splat(f(1.0))
    tail = vecmath.normal_tail(vabs(x))
    density = vecmath.exp2_negative(fma(x * x, splat(f(-0.5 * LOG2E)), splat(f(-0.5 * np.log2(2 * np.pi)))))
    return g * fma(x, density, select_lt(x, zero, tail, one - tail))


@register_jitable
def _gelu_tanh(g, x):
    """The activation is ``x s(z)``, s the sigmoid: ``g (s + x z' s')``."""
    one, factor, square = splat(f(1.0)), splat(f(1.5957691216057308)), x * x
    s, slope = _sigmoid(fma(splat(f(0.044715)) * square, x, x) * factor)
    return g * fma(x * slope, fma(square, splat(f(0.134145)), one) * factor, s)


SLOPE = complete({
    "relu": _relu,
    "relu6": _relu6,
    "silu": _silu,
    "hardswish": _hardswish,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
}, SLOPES, "CPU")  # fmt: skip
