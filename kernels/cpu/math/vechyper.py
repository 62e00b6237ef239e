"""Hyperbolic functions and their inverses on vector registers.

Within 3 units in the last place of float32 (tests/kernels/test_vecmath.py). Signs of zeros count.
"""

import math

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.math.veclog import log1p
from bslite.kernels.cpu.math.vecmath import half_exp
from bslite.kernels.cpu.vector.lanes import polynomial, with_sign_of
from bslite.kernels.cpu.vector.scaling import quotient
from bslite.kernels.cpu.vector.simd import fma, select_lt, splat, vabs, vmin, vsqrt

f = np.float32
_FAR = f(2.0**40)  # from here on a square and one more are the square
#: ``(sinh(t) / t - 1) / t**2`` by t**2 in [0, 1]: minimax, its relative error in ``sinh`` 2**-34.
_SINH = polynomial(2.817439508e-6, 1.983606635e-4, 8.333350532e-3, 1.666666716e-1)


@register_jitable
def _halves(a):
    """``e**a / 2`` and ``e**-a / 2`` for ``a >= 0``; the second stays at 2**-62 where that adds nothing."""
    e = half_exp(vmin(splat(f(90.0)), a))
    return e, quotient(splat(f(0.25)), vmin(splat(f(2.0**60)), e))


@register_jitable
def sinh(x):
    """The hyperbolic sine: a polynomial up to 1, where the powers cancel."""
    a = vabs(x)
    z = x * x
    up, down = _halves(a)
    return select_lt(a, splat(f(1.0)), fma(_SINH(z) * z, x, x), with_sign_of(up - down, x))


@register_jitable
def cosh(x):
    """The hyperbolic cosine."""
    up, down = _halves(vabs(x))
    return up + down


@register_jitable
def _log1p_of(u, a):
    """``log(1 + u)``, and where a is far out, the logarithm of 2 a instead."""
    u = select_lt(splat(_FAR), a, a * splat(f(0.5)), u)
    more = select_lt(splat(_FAR), a, splat(f(2 * math.log(2))), splat(f(0.0)))
    return log1p(u) + more


@register_jitable
def asinh(x):
    """``log(x + sqrt(x**2 + 1))``, written so that nothing cancels."""
    a, one = vabs(x), splat(f(1.0))
    c = vmin(splat(_FAR), a)
    rest = quotient(c, one + vsqrt(fma(c, c, one)))
    return with_sign_of(_log1p_of(fma(c, rest, c), a), x)


@register_jitable
def acosh(x):
    """``log(x + sqrt(x**2 - 1))``, written so that nothing cancels; NaN below 1."""
    one = splat(f(1.0))
    t = vmin(splat(_FAR), x) - one
    y = _log1p_of(t + vsqrt(fma(t, t, t + t)), x)
    return select_lt(x, one, splat(f(math.nan)), y)


@register_jitable
def atanh(x):
    """``log((1 + x) / (1 - x)) / 2``; NaN beyond 1."""
    a = vabs(x)
    y = log1p((a + a) / (splat(f(1.0)) - a)) * splat(f(0.5))
    return with_sign_of(y, x)
