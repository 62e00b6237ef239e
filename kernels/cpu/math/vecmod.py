"""Remainders of divisions on vector registers, exact.

A quotient below 2**26 in size is exact in float64 after it is cut off, and so is its product with the
divisor: the remainder is the difference. The C library computes registers with another lane, one by one.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.vector.lanes import DOUBLES, all_less, each_pair, select_eq, with_sign_of
from bslite.kernels.cpu.vector.simd import VEC, llvm_of_lanes, primitive, select_lt, splat, vabs, vec_t

f = np.float32
_MOST = f(2.0**26)
_any_fmod = each_pair(np.fmod)


@primitive(vec_t, vec_t, vec_t)
def _rest(builder, x, z):
    """What of x is left of whole multiples of z, rounded towards zero."""
    wide, divisor = builder.fpext(x, DOUBLES), builder.fpext(z, DOUBLES)
    whole = llvm_of_lanes(builder, "trunc", builder.fdiv(wide, divisor))
    return builder.fptrunc(builder.fsub(wide, builder.fmul(whole, divisor)), VEC)


@register_jitable
def fmod(x, z):
    """``x - z * trunc(x / z)``, with the sign of x."""
    size = vabs(z)
    if not (all_less(vabs(x), size * splat(_MOST)) and all_less(size, splat(f(np.inf)))):
        return _any_fmod(x, z)
    return with_sign_of(_rest(x, z), x)


@register_jitable
def remainder(x, z):
    """``x - z * floor(x / z)``, with the sign of z unless it is zero."""
    rest, zero = fmod(x, z), splat(f(0.0))
    other = select_lt(rest, zero, select_lt(zero, z, rest + z, rest), select_lt(z, zero, rest + z, rest))
    return select_eq(rest, zero, rest, other)
