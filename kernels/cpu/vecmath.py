"""exp, tanh, sigmoid and erf on vector registers, as polynomials: SVML is gone from Numba, libm calls are scalar.

Bounds, measured over every exponent in tests/test_vecmath.py: exp 2 ULP, sigmoid 4, tanh 4, erf 6 (float32).
NaN comes through; exp overflows to inf and underflows through the subnormals to 0.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.simd import fma, pow2, rint, select_lt, splat, vabs, vmax, vmin

f = np.float32
_LOG2E = f(1.44269504088896341)
_LN2_HI = f(0.693359375)  # few bits, so that n * LN2_HI is exact
_LN2_LO = f(-2.12194440e-4)


@register_jitable
def exp(x):
    """``e**x`` (Cephes expf: Cody-Waite reduction by ln 2, then a degree-5 polynomial on |r| <= ln2/2)."""
    x = vmin(splat(f(89.0)), vmax(splat(f(-104.0)), x))
    n = rint(x * splat(_LOG2E))
    r = fma(n, splat(-_LN2_HI), x)
    r = fma(n, splat(-_LN2_LO), r)
    p = splat(f(1.9875691500e-4))
    p = fma(p, r, splat(f(1.3981999507e-3)))
    p = fma(p, r, splat(f(8.3334519073e-3)))
    p = fma(p, r, splat(f(4.1665795894e-2)))
    p = fma(p, r, splat(f(1.6666665459e-1)))
    p = fma(p, r, splat(f(5.0000001201e-1)))
    p = fma(p, r * r, r) + splat(f(1.0))
    # 2**n in two factors: n reaches 128 and -150, beyond one exponent field
    half = rint(n * splat(f(0.5)))
    return p * pow2(half) * pow2(n - half)


@register_jitable
def sigmoid(x):
    """``1 / (1 + e**-x)``; no overflow on either side because exp saturates."""
    return splat(f(1.0)) / (splat(f(1.0)) + exp(splat(f(0.0)) - x))


@register_jitable
def tanh(x):
    """Odd polynomial below 0.625 (Cephes tanhf), ``1 - 2/(e**2|x| + 1)`` above, sign restored."""
    a = vabs(x)
    z = x * x
    p = splat(f(-5.70498872745e-3))
    p = fma(p, z, splat(f(2.06390887954e-2)))
    p = fma(p, z, splat(f(-5.37397155531e-2)))
    p = fma(p, z, splat(f(1.33314422036e-1)))
    p = fma(p, z, splat(f(-3.33332819422e-1)))
    small = fma(p * z, x, x)
    big = splat(f(1.0)) - splat(f(2.0)) / (exp(a + a) + splat(f(1.0)))
    big = select_lt(x, splat(f(0.0)), splat(f(0.0)) - big, big)
    return select_lt(a, splat(f(0.625)), small, big)


@register_jitable
def erf(x):
    """Odd rational-free form: a Taylor-like polynomial below 1 and ``1 - exp(-q(|x|))`` above (N. Juffa's erff)."""
    a = vabs(x)
    s = x * x
    p = splat(f(-5.96761703e-4))
    p = fma(p, s, splat(f(4.99119423e-3)))
    p = fma(p, s, splat(f(-2.67681349e-2)))
    p = fma(p, s, splat(f(1.12819925e-1)))
    p = fma(p, s, splat(f(-3.76125336e-1)))
    p = fma(p, s, splat(f(1.28379166e-1)))
    small = fma(p, x, x)
    c = vmin(splat(f(4.0)), a)
    q = splat(f(-1.72853470e-5))
    q = fma(q, c, splat(f(3.83197126e-4)))
    q = fma(q, c, splat(f(-3.88396438e-3)))
    q = fma(q, c, splat(f(2.42546219e-2)))
    q = fma(q, c, splat(f(-1.06777877e-1)))
    q = fma(q, c, splat(f(-6.34846687e-1)))
    q = fma(q, c, splat(f(-1.28717512e-1)))
    q = fma(q, c, splat(f(0.0)) - c)
    big = splat(f(1.0)) - exp(q)
    big = select_lt(x, splat(f(0.0)), splat(f(0.0)) - big, big)
    return select_lt(splat(f(0.921875)), a, big, small)
