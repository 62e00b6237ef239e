"""Sine, cosine and tangent on vector registers: what multiples of pi/2 leave, then polynomials.

Within 2 units in the last place of float32, the tangent within 3.5 (tests/kernels/test_vecmath.py). The C
library computes lanes at 2**20 or beyond, where the parts of pi/2 are too few; infinities give NaN.
"""

import math

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.vector.lanes import (
    DOUBLES,
    ONES,
    all_doubles,
    all_ints,
    all_less,
    each_lane,
    if_odd,
    ints_of,
    polynomial,
    select_eq,
)
from bslite.kernels.cpu.vector.scaling import quotient
from bslite.kernels.cpu.vector.simd import (
    LANES,
    VEC,
    fma,
    llvm_of_lanes,
    primitive,
    select_lt,
    splat,
    vabs,
    vec_t,
)

f = np.float32
_FAR = f(2.0**20)
#: pi/2 in parts: of 24 bits each, for multiply-adds that round once; and of 33 bits, exact in float64 times
#: any integer below 2**20.
_PARTS = f(1.57079637), f(-4.37113883e-08), f(-1.7151245e-15)
_WIDE_HI, _WIDE_LO = 1.57079632673412561417, 6.07710050650619224932e-11
#: Of sinf and cosf in Cephes.
_SINE = polynomial(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COSINE = polynomial(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
#: ``(tan(r) / r - 1) / r**2`` for r up to 0.84: minimax, its relative error in ``tan`` 2**-31.
_TANGENT = polynomial(
    2.499101451e-3, -1.719637075e-3, 6.105828099e-3, 7.762448397e-3, 2.214365266e-2, 5.393102393e-2,
    1.333357543e-1, 3.333332833e-1,
)  # fmt: skip


@primitive(vec_t, vec_t)
def _half_pis(builder, x):
    """``x / (pi/2)`` rounded to the nearest integer, computed in float64."""
    wide = builder.fmul(builder.fpext(x, DOUBLES), all_doubles(2 / math.pi))
    return builder.fptrunc(llvm_of_lanes(builder, "rint", wide), VEC)


@primitive(vec_t, vec_t, vec_t)
def _wide_rest(builder, x, n):
    """``x - n * pi/2``, computed in float64."""
    wide, n = builder.fpext(x, DOUBLES), builder.fpext(n, DOUBLES)
    wide = builder.fsub(wide, builder.fmul(n, all_doubles(_WIDE_HI)))
    return builder.fptrunc(builder.fsub(wide, builder.fmul(n, all_doubles(_WIDE_LO))), VEC)


@register_jitable
def _reduced(x):
    """``x - n * pi/2`` and n plus `ONES`, for a whole number n within 0.53 of ``x / (pi/2)``.

    The first product and difference are exact (Cody and Waite).
    """
    if LANES < 8:  # perhaps no fused multiply-adds
        n = _half_pis(x)
        return _wide_rest(x, n), n + splat(ONES)
    m = fma(x, splat(f(2 / math.pi)), splat(ONES))
    n = m - splat(ONES)
    high, middle, low = _PARTS
    return fma(n, splat(-low), fma(n, splat(-middle), fma(n, splat(-high), x))), m


@primitive(vec_t, vec_t, vec_t)
def _negated_in_second_half(builder, m, y):
    """``-y`` where the whole number in the low bits of m is 2 or 3 modulo 4."""
    bit = builder.and_(ints_of(builder, m), all_ints(2))
    return builder.bitcast(builder.xor(ints_of(builder, y), builder.shl(bit, all_ints(30))), VEC)


@register_jitable
def _quarters(r, m):
    """The sine of ``r + n * pi/2``, for ``|r| <= pi/4`` and n in the low bits of m."""
    z = r * r
    s = _SINE(z)
    s = fma(s * z, r, r)
    c = _COSINE(z)
    c = fma(c * z, z, fma(splat(f(-0.5)), z, splat(f(1.0))))
    return _negated_in_second_half(m, if_odd(m, c, s))


def _unless_far(near, function):
    """``near`` of a register; of its lanes that are far out, the C library's ``function``."""
    of_lanes = each_lane(function)

    @register_jitable
    def whole(x):
        y = near(x)
        if all_less(vabs(x), splat(_FAR)):
            return y
        return select_lt(vabs(x), splat(_FAR), y, of_lanes(x))

    return whole


@register_jitable
def _sin_near(x):
    r, m = _reduced(x)
    return select_eq(x, splat(f(0.0)), x, _quarters(r, m))  # zeros of either sign


@register_jitable
def _cos_near(x):  # the sine of x + pi/2
    r, m = _reduced(x)
    return _quarters(r, m + splat(f(1.0)))


@register_jitable
def _tan_near(x):
    r, m = _reduced(x)
    z = r * r
    t = fma(_TANGENT(z) * z, r, r)
    return select_eq(x, splat(f(0.0)), x, if_odd(m, quotient(splat(f(-1.0)), t), t))


sin = _unless_far(_sin_near, math.sin)
cos = _unless_far(_cos_near, math.cos)
tan = _unless_far(_tan_near, math.tan)
