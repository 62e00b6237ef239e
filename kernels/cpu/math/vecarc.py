"""Inverses of sine, cosine and tangent on vector registers, as polynomials.

Within 2 units in the last place of float32, `atan2` within 3 (`test_vecmath`, `test_vecpairs`).
As in C99 the inverse sine and cosine of what is beyond 1 are NaN, and signs of zeros count.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.vector.lanes import polynomial, select_eq, select_negative, with_sign_of
from bslite.kernels.cpu.vector.scaling import quotient
from bslite.kernels.cpu.vector.simd import fma, select_lt, splat, vabs, vmax, vmin, vsqrt

f = np.float32
_PI_HI, _PI_LO = f(np.pi), f(np.pi - np.float64(f(np.pi)))  # pi in two parts
_HALF_HI, _HALF_LO = _PI_HI / f(2.0), _PI_LO / f(2.0)
#: ``(atan(t) / t - 1) / t**2`` by t**2 in [0, 1]: minimax, its relative error in ``atan`` 2**-28.
_ATAN = polynomial(
    -1.793620293e-3, 1.091459952e-2, -3.117783368e-2, 5.795758218e-2, -8.403449506e-2,
    1.095218584e-1, -1.426424235e-1, 1.999854892e-1, -3.333329856e-1,
)  # fmt: skip
#: ``(asin(t) / t - 1) / t**2`` by t**2 in [0, 1/4]: minimax, its relative error in ``asin`` 2**-27.
_ASIN = polynomial(4.216630757e-2, 2.417951636e-2, 4.547037557e-2, 7.495297492e-2, 1.66667521e-1)


@register_jitable
def _atan_within(t):
    """The arctangent of t in [-1, 1]."""
    z = t * t
    return fma(_ATAN(z) * z, t, t)


@register_jitable
def _from_half_pi(y):
    return (splat(_HALF_HI) - y) + splat(_HALF_LO)


@register_jitable
def atan(x):
    """The arctangent: beyond 1, what that of 1/x lacks of pi/2."""
    a, one = vabs(x), splat(f(1.0))
    inverse = quotient(one, vmin(splat(f(2.0**60)), vmax(one, a)))
    near = _atan_within(select_lt(one, a, inverse, a))
    return with_sign_of(select_lt(one, a, _from_half_pi(near), near), x)


@register_jitable
def atan2(y, x):
    """The angle of the point (x, y), in [-pi, pi]."""
    a, b, zero = vabs(y), vabs(x), splat(f(0.0))
    high = vmax(a, b)
    t = vmin(a, b) / high
    t = select_eq(a, b, splat(f(1.0)), t)  # infinities, too
    angle = _atan_within(select_eq(high, zero, zero, t))
    angle = select_lt(b, a, _from_half_pi(angle), angle)
    angle = select_negative(x, (splat(_PI_HI) - angle) + splat(_PI_LO), angle)
    angle = with_sign_of(angle, y)
    return select_eq(x, x, select_eq(y, y, angle, y), x)


@register_jitable
def _halved(a):
    """``(asin(t) - t) / t`` and t, where t is a up to 1/2, and beyond the root of (1 - a) / 2, of whose
    arcsine that of a lacks twice as much of pi/2.
    """
    half = splat(f(0.5))
    z = select_lt(half, a, fma(a, splat(f(-0.5)), half), a * a)
    return _ASIN(z) * z, select_lt(half, a, vsqrt(z), a)


@register_jitable
def asin(x):
    """The arcsine."""
    a = vabs(x)
    p, t = _halved(a)
    y = fma(p, t, t)
    return with_sign_of(select_lt(splat(f(0.5)), a, _from_half_pi(y + y), y), x)


@register_jitable
def acos(x):
    """The arccosine."""
    a = vabs(x)
    p, t = _halved(a)
    y = fma(p, t, t)
    near = _from_half_pi(with_sign_of(y, x))
    far = select_negative(x, (splat(_PI_HI) - (y + y)) + splat(_PI_LO), y + y)
    return select_lt(splat(f(0.5)), a, far, near)
