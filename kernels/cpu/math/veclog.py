"""Logarithms, expm1 and softplus on vector registers, as polynomials.

Largest errors in units in the last place of float32 (tests/kernels/test_vecmath.py holds them to these bounds
at a sample of every exponent): log 1.5, log1p 1.5, log2 and log10 2, expm1 1.5. As in C99, log(0) is -inf;
below, NaN.
"""

import math

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.math import vecmath
from bslite.kernels.cpu.vector.lanes import exponent, mantissa, polynomial, select_eq
from bslite.kernels.cpu.vector.scaling import rough_quotient
from bslite.kernels.cpu.vector.simd import fma, minus_abs, select_lt, splat, vmax, vmin

f = np.float32
_INF = f(math.inf)
_NAN = f(math.nan)
_NORMAL = f(2.0**-126)
_LN2_HI, _LN2_LO = f(0.693359375), f(-2.12194440e-4)  # few bits, so that n * LN2_HI is exact
_LOG2_HI, _LOG2_LO = f(0.30078125), f(2.48745663981195213739e-4)  # of the logarithm of 2 to base 10
_LOGE_HI, _LOGE_LO = f(0.43359375), f(7.00731903251827651129e-4)  # and of that of e
_LOG = polynomial(
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip


@register_jitable
def _log_rest(r):
    """``log(1 + r) - r`` for 1 + r in [sqrt(1/2), sqrt(2)): the polynomial of Cephes' logf."""
    z = r * r
    p = _LOG(r)
    return p * r * z


@register_jitable
def _ends(x, y):
    """``y``, except where x is not finite and above zero: there, the logarithm of that x."""
    zero = splat(f(0.0))
    y = select_lt(x, splat(_INF), y, x)  # infinity and NaN are their own logarithms
    y = select_lt(x, zero, splat(_NAN), y)
    return select_eq(x, zero, splat(-_INF), y)


@register_jitable
def _parts(x):
    """The exponent and mantissa, also of subnormal numbers."""
    big = select_lt(x, splat(_NORMAL), x * splat(f(2.0**23)), x)
    n = exponent(big) - select_lt(x, splat(_NORMAL), splat(f(23.0)), splat(f(0.0)))
    return n, mantissa(big) - splat(f(1.0))


@register_jitable
def log(x):
    """Natural logarithm."""
    n, r = _parts(x)
    y = fma(n, splat(_LN2_LO), _log_rest(r))
    y = fma(splat(f(-0.5)) * r, r, y)
    return _ends(x, fma(n, splat(_LN2_HI), r + y))


@register_jitable
def log2(x):
    """Logarithm to base 2: ``log2(e) - 1`` times both parts, then the parts themselves, small ones first."""
    n, r = _parts(x)
    more = splat(f(0.44269504088896341))
    y = fma(splat(f(-0.5)) * r, r, _log_rest(r))
    return _ends(x, (fma(r, more, y * more) + y) + r + n)


@register_jitable
def log10(x):
    """Logarithm to base 10; its factors are in two parts, of which the first have few bits."""
    n, r = _parts(x)
    y = fma(splat(f(-0.5)) * r, r, _log_rest(r))
    low = fma(n, splat(_LOG2_LO), (r + y) * splat(_LOGE_LO))
    return _ends(x, fma(n, splat(_LOG2_HI), fma(r, splat(_LOGE_HI), fma(y, splat(_LOGE_HI), low))))


@register_jitable
def log1p(x):
    """``log(1 + x)``: near zero from x itself, else corrected for the rounding of 1 + x."""
    u = x + splat(f(1.0))
    n, r = exponent(u), mantissa(u) - splat(f(1.0))
    lost = rough_quotient(x - (u - splat(f(1.0))), u)
    near = select_eq(n, splat(f(0.0)), splat(f(1.0)), splat(f(0.0)))
    r = select_lt(splat(f(0.0)), near, x, r)
    lost = select_lt(splat(f(0.0)), near, splat(f(0.0)), lost)
    y = fma(n, splat(_LN2_LO), _log_rest(r) + lost)
    y = fma(splat(f(-0.5)) * r, r, y)
    y = fma(n, splat(_LN2_HI), r + y)
    y = select_lt(x, splat(_INF), y, x)
    y = select_lt(x, splat(f(-1.0)), splat(_NAN), y)
    y = select_eq(x, splat(f(-1.0)), splat(-_INF), y)
    return select_eq(x, splat(f(0.0)), x, y)  # zeros of either sign


@register_jitable
def expm1(x):
    """``e**x - 1``, without the cancellation near 0."""
    c = vmin(splat(f(25.0)), vmax(splat(f(-25.0)), x))
    y = select_lt(x, splat(f(20.0)), vecmath.expm1_within(c), vecmath.exp(x))
    return select_eq(x, splat(f(0.0)), x, y)


@register_jitable
def softplus(x):
    """``log(1 + e**x)`` as ``max(x, 0) + log1p(e**-|x|)``."""
    return vmax(splat(f(0.0)), x) + log1p(vecmath.exp(minus_abs(x)))


@register_jitable
def log_sigmoid(x):
    """``log(1 / (1 + e**-x))``."""
    return vmin(splat(f(0.0)), x) - log1p(vecmath.exp(minus_abs(x)))
