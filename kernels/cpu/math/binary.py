"""Functions ``function(x, z, w)`` of two or three registers; those of two ignore the last."""

import math

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.math import veclog, vecmath, vecpow
from bslite.kernels.cpu.vector import lanes
from bslite.kernels.cpu.vector.lanes import select_eq
from bslite.kernels.cpu.vector.simd import fma, minus_abs, select_lt, splat, vmax_nan

f = np.float32


@register_jitable
def _copy(x, z, w):
    return x


@register_jitable
def _affine(x, z, w):
    return fma(x, z, w)


@register_jitable
def _add(x, z, w):
    return x + z


@register_jitable
def _mul(x, z, w):
    return x * z


@register_jitable
def _sub(x, z, w):
    return x - z


@register_jitable
def _div(x, z, w):
    return x / z


@register_jitable
def _power(x, z, w):
    return vecpow.power(x, z)


@register_jitable
def _maximum(x, z, w):
    return vmax_nan(x, z)


@register_jitable
def _minimum(x, z, w):
    return lanes.negated(vmax_nan(lanes.negated(x), lanes.negated(z)))


@register_jitable
def _logaddexp(x, z, w):
    # equal values separately: the difference of two infinities is NaN
    apart = vmax_nan(x, z) + veclog.log1p(vecmath.exp(minus_abs(x - z)))
    return select_eq(x, z, x + splat(f(math.log(2.0))), apart)


@register_jitable
def _prelu(x, z, w):
    return select_lt(splat(f(0.0)), x, x, x * z)


@register_jitable
def _remainder_of(x, z):
    rest = np.fmod(x, z)
    if rest != 0.0 and (rest < 0.0) != (z < 0.0):
        rest += z
    return rest


def _of_pairs(function):
    """A function computed lane by lane by the C library, in float64, and rounded once."""
    each = lanes.each_pair(function)

    @register_jitable
    def apply(x, z, w):
        return each(x, z)

    return apply


FUNCTIONS = {
    "copy": _copy,
    "affine": _affine,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "pow": _power,
    "maximum": _maximum,
    "minimum": _minimum,
    "logaddexp": _logaddexp,
    "prelu": _prelu,
    "fmod": _of_pairs(np.fmod),
    "remainder": _of_pairs(_remainder_of),
    "atan2": _of_pairs(math.atan2),
}
