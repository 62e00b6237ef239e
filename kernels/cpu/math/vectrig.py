"""Sine and cosine on vector registers: reduced in float64, then the polynomials of Cephes' sinf.

Within 2 units in the last place of float32 (tests/kernels/test_vecmath.py). The C library computes lane by
lane registers with a lane at 2**20 or beyond, where two parts of pi/2 are too few; infinities give NaN.
"""

import math

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.vector.lanes import (
    DOUBLES,
    INTS,
    all_doubles,
    all_ints,
    all_less,
    each_lane,
    if_odd,
    ints_of,
    polynomial,
)
from bslite.kernels.cpu.vector.simd import VEC, fma, llvm_of_lanes, primitive, splat, vabs, vec_t

f = np.float32
_FAR = f(2.0**20)
_HALF_PI_HI = 1.57079632673412561417  # 33 bits: exact times any integer below 2**20
_HALF_PI_LO = 6.07710050650619224932e-11
_SINE = polynomial(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COSINE = polynomial(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


@primitive(vec_t, vec_t)
def _half_pis(builder, x):
    """``x / (pi/2)`` rounded to the nearest integer."""
    wide = builder.fmul(builder.fpext(x, DOUBLES), all_doubles(2 / math.pi))
    return builder.fptrunc(llvm_of_lanes(builder, "rint", wide), VEC)


@primitive(vec_t, vec_t, vec_t)
def _rest(builder, x, n):
    """``x - n * pi/2``, computed in float64."""
    wide, n = builder.fpext(x, DOUBLES), builder.fpext(n, DOUBLES)
    wide = builder.fsub(wide, builder.fmul(n, all_doubles(_HALF_PI_HI)))
    return builder.fptrunc(builder.fsub(wide, builder.fmul(n, all_doubles(_HALF_PI_LO))), VEC)


@primitive(vec_t, vec_t, vec_t)
def _negated_in_second_half(builder, n, y):
    """``-y`` where the integral n is 2 or 3 modulo 4."""
    bit = builder.and_(builder.fptosi(n, INTS), all_ints(2))
    return builder.bitcast(builder.xor(ints_of(builder, y), builder.shl(bit, all_ints(30))), VEC)


@register_jitable
def _quarters(r, n):
    """The sine of ``r + n * pi/2``, for ``|r| <= pi/4``."""
    z = r * r
    s = _SINE(z)
    s = fma(s * z, r, r)
    c = _COSINE(z)
    c = fma(c * z, z, fma(splat(f(-0.5)), z, splat(f(1.0))))
    return _negated_in_second_half(n, if_odd(n, c, s))


_sin_far = each_lane(math.sin)
_cos_far = each_lane(math.cos)


@register_jitable
def sin(x):
    """Sine."""
    if not all_less(vabs(x), splat(_FAR)):
        return _sin_far(x)
    n = _half_pis(x)
    return _quarters(_rest(x, n), n)


@register_jitable
def cos(x):
    """The cosine, as the sine of x + pi/2."""
    if not all_less(vabs(x), splat(_FAR)):
        return _cos_far(x)
    n = _half_pis(x)
    return _quarters(_rest(x, n), n + splat(f(1.0)))
