"""exp, tanh, sigmoid and erf on vector registers, as polynomials: Numba has no SVML any more; libm is scalar.

Largest errors in units in the last place of float32, measured over all floats between 2**-32 and 2**8 of
either sign on AVX-512: exp 0.89, expm1 of negatives 0.86, sigmoid 2.5, tanh 1.16, erf 1.10 (with and without
fused multiply-adds, at a sample of every exponent: tests/kernels/test_vecmath.py). NaN gives NaN; exp
overflows to inf and underflows through the subnormals to 0; the others saturate exactly.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.math import pieces
from bslite.kernels.cpu.vector.lanes import ONES, polynomial, with_sign_of
from bslite.kernels.cpu.vector.scaling import (
    STEPS,
    add_exponent,
    pow2,
    power,
    quotient,
    root,
    times_normal_pow2,
    times_pow2,
)
from bslite.kernels.cpu.vector.simd import LANES, fma, select_lt, splat, vabs, vmax, vmin

f = np.float32
_LOG2E = f(1.44269504088896341)
_ONES_LESS = ONES - f(52.0)
_STEP = f(ONES / STEPS)  # floats near it are a step of an exponent apart
_SMALL = f(2.0**-52)
_LN2_HI = f(0.693359375)  # few bits, so that n * LN2_HI is exact
_LN2_LO = f(-2.12194440e-4)
_LN2 = f(0.6931471805599453)
_BEYOND_LINEAR = polynomial(
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1
)
_EXP = polynomial(1.381454e-3, 8.368745e-3, 4.166839e-2, 1.6666521e-1, 4.9999994e-1, 1.0, 1.0)
_EXP_OF_MINUS = polynomial(1.381454e-3, -8.368745e-3, 4.166839e-2, -1.6666521e-1, 4.9999994e-1, -1.0, 1.0)
_TANH = polynomial(
    -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1
)
_ERF_NEAR = polynomial(
    -5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1
)
_ERF_FAR = polynomial(
    -1.72853470e-5, 3.83197126e-4, -3.88396438e-3, 2.42546219e-2,
    -1.06777877e-1, -6.34846687e-1, -1.28717512e-1,
)  # fmt: skip
#: ``(log2(erfc(x / sqrt(2)) / 2) + 1) / x``: even and odd powers, two short chains of operations. Fitted for
#: x in [0, 6], errors weighted by the root of erfc; beyond, it falls on.
_TAIL = polynomial(9.69648470e-7, 8.01317741e-5, 6.60604713e-6, -5.24472969e-2, -1.15110462)
_TAIL_ODD = polynomial(-3.42339342e-8, -1.18692407e-5, -2.87300007e-4, 6.94832369e-3, -4.59217689e-1)
_EXP2 = polynomial(0.000153533618, 0.00133988744, 0.00961843736, 0.0555033247, 0.240226479, 0.693147203, 1.0)

#: ``(b**r - 1) / r`` for r within half of a 16th of an exponent: ``b**r`` is then within 2e-9.
_NEAR_EXP = polynomial(0.16666719, 0.50001616, 1.0)
_NEAR_EXP_OF_MINUS = polynomial(-0.16666719, 0.50001616, -1.0)
_NEAR_EXP2 = polynomial(0.05550214, 0.24023429, 0.69314718)

_tanh_pieces = pieces.in_pieces(pieces.TANH, pieces.TANH_STEP, rest=True)
_tail_pieces = pieces.in_pieces(pieces.TAIL, pieces.TAIL_STEP)
_TANH_END, _TAIL_END = (f((pieces.PIECES - 1) * step) for step in (pieces.TANH_STEP, pieces.TAIL_STEP))
_times_pow2 = times_normal_pow2(0)
_times_small_pow2 = times_normal_pow2(-52)


def _raised(whole, near):
    """A vector function of r and m: ``b**r`` times the power of two that `power` makes of m, if the result is
    normal, where ``whole`` gives ``b**r`` for r within half an exponent and ``near`` gives ``(b**r - 1) / r``
    for r within half a step.
    """
    if STEPS == 1:
        return register_jitable(lambda r, m: _times_pow2(whole(r), m))

    @register_jitable
    def raised(r, m):
        two = power(m)
        return fma(two * r, near(r), two)

    return raised


_exp_raised = _raised(_EXP, _NEAR_EXP)
_exp2_raised = _raised(_EXP2, _NEAR_EXP2)


@register_jitable
def _powers_of_two(x):
    """``x / ln 2`` rounded to an integer, plus a number whose last place is 1."""
    return fma(x, splat(_LOG2E), splat(ONES))


@register_jitable
def _remainder(x, n):
    """``x - n * ln 2``, as exactly as two parts of ln 2 allow (Cody and Waite)."""
    return fma(n, splat(-_LN2_LO), fma(n, splat(-_LN2_HI), x))


@register_jitable
def _beyond_linear(r):
    """``(e**r - 1 - r) / r**2`` for ``|r| <= ln2 / 2`` (the polynomial of Cephes' expf)."""
    return _BEYOND_LINEAR(r)


@register_jitable
def _expm1_near(r):
    """``e**r - 1`` for ``|r| <= ln2 / 2``."""
    return fma(_beyond_linear(r), r * r, r)


@register_jitable
def _exp(x):
    """``e**x`` for x in [-104, 89]; NaN gives NaN. The polynomial is the minimax one of degree 6 for ``|r| <=
    ln2 / 2`` whose first two coefficients are 1: its relative error is 2**-28.
    """
    m = _powers_of_two(x)
    n = m - splat(ONES)
    return times_pow2(_EXP(_remainder(x, n)), m, n)


@register_jitable
def _exp_normal(x):
    """``e**x`` for x in [-87, 88]: the same without the subnormals, in fewer operations."""
    m = fma(x, splat(_LOG2E), splat(_STEP))
    return _exp_raised(_remainder(x, m - splat(_STEP)), m)


@register_jitable
def exp(x):
    """``e**x``."""
    return _exp(vmin(splat(f(89.0)), vmax(splat(f(-104.0)), x)))


@register_jitable
def half_exp(x):
    """``e**x / 2`` for x in [-104, 90]."""
    m = _powers_of_two(x)
    n, one = m - splat(ONES), splat(f(1.0))
    return times_pow2(_EXP(_remainder(x, n)), m - one, n - one)


@register_jitable
def exp2(x):
    """``2**x``: what is left of x after its nearest integer is exact, so this is not ``exp(x * ln 2)``."""
    x = vmin(splat(f(128.0)), vmax(splat(f(-151.0)), x))
    m = x + splat(ONES)
    n = m - splat(ONES)
    return times_pow2(_EXP2(x - n), m, n)


@register_jitable
def exp2_negative(x):
    """``2**x`` for ``x <= 0``, in fewer operations. Subnormal powers are given as some number between 0 and
    2**-126, and those from 2**-127 on as 0.
    """
    x = vmax(splat(f(-127.0)), x)
    m = x + splat(_STEP)
    return _exp2_raised(x - (m - splat(_STEP)), m)  # 2**-127 becomes 0


@register_jitable
def expm1_negative(x):
    """``e**x - 1`` for ``x <= 0``, without the cancellation near 0; larger x give the value at 0."""
    return expm1_within(vmin(splat(f(0.0)), vmax(splat(f(-25.0)), x)))


@register_jitable
def expm1_within(x):
    """``e**x - 1`` for x in [-25, 25]; NaN gives NaN."""
    n = _powers_of_two(x) - splat(ONES)
    scale = pow2(n)
    r = _remainder(x, n)
    if LANES < 8:  # perhaps no fused multiply-adds: the terms that cancel come first, exact for n = 1
        return fma(_beyond_linear(r) * (r * r), scale, fma(r, scale, scale - splat(f(1.0))))
    return fma(_expm1_near(r), scale, scale - splat(f(1.0)))


@register_jitable
def sigmoid(x):
    """``1 / (1 + e**-x)``, both parts times 2**-52: ``e**-x`` then overflows only where the result is 0, so
    that it is accurate down to the subnormals.
    """
    x = vmin(splat(f(32.0)), vmax(splat(f(-104.0)), x))
    m = fma(x, splat(-_LOG2E), splat(ONES))
    n = m - splat(ONES)
    r = fma(n, splat(_LN2_LO), fma(n, splat(_LN2_HI), x))
    e = _times_small_pow2(_EXP_OF_MINUS(r), m)
    return quotient(splat(_SMALL), splat(_SMALL) + e)


@register_jitable
def times_sigmoid(y, x):
    """``y * sigmoid(x)``, if y is NaN wherever x is: `sigmoid` in fewer operations. One part of ln 2 adds
    0.05 units in the last place times ``|x|`` where x is below 0.
    """
    if LANES < 8:  # perhaps no fused multiply-adds: a rounded product with ln 2 would add more
        return y * sigmoid(x)
    if STEPS > 1:  # `e**-x` may be infinite: below -88 the result is 0, as in torch
        x = vmin(splat(f(104.0)), vmax(splat(f(-104.0)), x))
        m = fma(x, splat(-_LOG2E), splat(_STEP))
        n, two = m - splat(_STEP), root(m)
        r = fma(n, splat(_LN2), x)
        return y / (splat(f(1.0)) + times_pow2(fma(two * r, _NEAR_EXP_OF_MINUS(r), two), m, n))
    x = vmin(splat(f(32.0)), vmax(splat(f(-104.0)), x))
    m = fma(x, splat(-_LOG2E), splat(_ONES_LESS))
    r = fma(m - splat(_ONES_LESS), splat(_LN2), x)
    return y * quotient(splat(_SMALL), splat(_SMALL) + add_exponent(_EXP_OF_MINUS(r), m))


@register_jitable
def _tanh_in_pieces(x):
    """As `pieces` has it, sign restored."""
    return with_sign_of(_tanh_pieces(vmin(splat(_TANH_END), vabs(x))), x)


@register_jitable
def _tanh_of_powers(x):
    """Odd polynomial below 0.625 (Cephes tanhf), ``1 - 2/(e**2|x| + 1)`` above, sign restored."""
    a = vabs(x)
    z = x * x
    p = _TANH(z)
    small = fma(p * z, x, x)
    above = _exp_normal(vmin(splat(f(20.0)), a + a)) + splat(f(1.0))
    big = splat(f(1.0)) - quotient(splat(f(2.0)), above)
    big = select_lt(x, splat(f(0.0)), splat(f(0.0)) - big, big)
    return select_lt(a, splat(f(0.625)), small, big)


@register_jitable
def _tail_in_pieces(x):
    """As `pieces` has it: 0 from 5.66 on."""
    return _tail_pieces(vmin(splat(_TAIL_END), x))


@register_jitable
def _tail_as_power(x):
    """A power of 2 whose exponent is a polynomial; below 2**-126 it is 0."""
    x = vmin(splat(f(16.0)), x)
    s = x * x
    return exp2_negative(fma(fma(_TAIL_ODD(s), x, _TAIL(s)), x, splat(f(-1.0))))


#: The hyperbolic tangent.
tanh = _tanh_in_pieces if pieces.GOES else _tanh_of_powers
#: The part of a standard normal distribution beyond ``x >= 0``, ``erfc(x / sqrt(2)) / 2``: its relative error
#: is 1e-6 up to 3, 5e-5 up to 5.5.
normal_tail = _tail_in_pieces if pieces.GOES else _tail_as_power


@register_jitable
def erf(x):
    """A Taylor-like odd polynomial below 1 and ``1 - exp(-q(|x|))`` above, without a division (N. Juffa's
    erff).
    """
    a = vabs(x)
    s = x * x
    p = _ERF_NEAR(s)
    small = fma(p, x, x)
    c = vmin(splat(f(4.0)), a)
    q = _ERF_FAR(c)
    q = fma(q, c, splat(f(0.0)) - c)
    big = splat(f(1.0)) - _exp_normal(q)
    big = select_lt(x, splat(f(0.0)), splat(f(0.0)) - big, big)
    return select_lt(splat(f(0.921875)), a, big, small)
