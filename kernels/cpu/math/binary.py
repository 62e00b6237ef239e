"""Functions ``function(x, z, w)`` of two or three registers; those of two ignore the last."""

import math

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.elementwise import slope_of
from bslite.kernels.cpu.math import vecarc, veclog, vecmath, vecmod, vecpow
from bslite.kernels.cpu.math.slopes import SLOPE
from bslite.kernels.cpu.vector import lanes
from bslite.kernels.cpu.vector.lanes import negated, select_eq
from bslite.kernels.cpu.vector.simd import fma, minus_abs, select_lt, splat, vmax_nan

f = np.float32


@register_jitable
def _logaddexp(x, z):
    # equal values separately: the difference of two infinities is NaN
    apart = vmax_nan(x, z) + veclog.log1p(vecmath.exp(minus_abs(x - z)))
    return select_eq(x, z, x + splat(f(math.log(2.0))), apart)


def _slope(name):
    """The function of the gradient of an activation."""
    slope = SLOPE[name]
    return register_jitable(lambda g, x, w: slope(g, x))


FUNCTIONS = {
    "copy": register_jitable(lambda x, z, w: x),
    "affine": fma,
    "add": register_jitable(lambda x, z, w: x + z),
    "sub": register_jitable(lambda x, z, w: x - z),
    "mul": register_jitable(lambda x, z, w: x * z),
    "div": register_jitable(lambda x, z, w: x / z),
    "pow": lanes.two_of_three(vecpow.power),
    "maximum": lanes.two_of_three(vmax_nan),
    "minimum": register_jitable(lambda x, z, w: negated(vmax_nan(negated(x), negated(z)))),
    "logaddexp": lanes.two_of_three(_logaddexp),
    "prelu": register_jitable(lambda x, z, w: select_lt(splat(f(0.0)), x, x, x * z)),
    "fmod": lanes.two_of_three(vecmod.fmod),
    "remainder": lanes.two_of_three(vecmod.remainder),
    "atan2": lanes.two_of_three(vecarc.atan2),
    **{slope_of(name): _slope(name) for name in SLOPE},
}
