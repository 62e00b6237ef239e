"""Functions of analysis and rounding with the signature of activations: ``function(x, a, b)`` on a register.

The C library computes rare ones lane by lane, in float64, rounded once.
"""

import math

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.math import veclog, vecmath, vectrig
from bslite.kernels.cpu.vector import lanes
from bslite.kernels.cpu.vector.simd import ceil, floor, rint, select_lt, splat, trunc, vabs, vsqrt

f = np.float32


@register_jitable
def _sign(x):
    one, zero = splat(f(1.0)), splat(f(0.0))
    return select_lt(zero, x, one, select_lt(x, zero, splat(f(-1.0)), zero))


FUNCTIONS = {
    name: lanes.one_of_three(function)
    for name, function in {
        "sigmoid": vecmath.sigmoid,
        "tanh": vecmath.tanh,
        "logsigmoid": veclog.log_sigmoid,
        "neg": lanes.negated,
        "abs": vabs,
        "sign": _sign,
        "sqrt": vsqrt,
        "rsqrt": register_jitable(lambda x: splat(f(1.0)) / vsqrt(x)),
        "reciprocal": register_jitable(lambda x: splat(f(1.0)) / x),
        "exp": vecmath.exp,
        "exp2": vecmath.exp2,
        "expm1": veclog.expm1,
        "log": veclog.log,
        "log2": veclog.log2,
        "log10": veclog.log10,
        "log1p": veclog.log1p,
        "sin": vectrig.sin,
        "cos": vectrig.cos,
        "tan": lanes.each_lane(math.tan),
        "asin": lanes.each_lane(math.asin),
        "acos": lanes.each_lane(math.acos),
        "atan": lanes.each_lane(math.atan),
        "sinh": lanes.each_lane(math.sinh),
        "cosh": lanes.each_lane(math.cosh),
        "asinh": lanes.each_lane(math.asinh),
        "acosh": lanes.each_lane(math.acosh),
        "atanh": lanes.each_lane(math.atanh),
        "erf": vecmath.erf,
        "floor": floor,
        "ceil": ceil,
        "round": rint,
        "trunc": trunc,
    }.items()
}
