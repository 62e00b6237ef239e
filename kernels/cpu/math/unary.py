"""Functions of analysis and rounding of a register; as those of activations: ``function(x, a, b)``."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.math import vecarc, vechyper, veclog, vecmath, vectrig
from bslite.kernels.cpu.vector import lanes, scaling
from bslite.kernels.cpu.vector.simd import ceil, floor, rint, select_lt, splat, trunc, vabs

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
        "sqrt": scaling.square_root,
        "rsqrt": scaling.reciprocal_root,
        "reciprocal": scaling.reciprocal,
        "exp": vecmath.exp,
        "exp2": vecmath.exp2,
        "expm1": veclog.expm1,
        "log": veclog.log,
        "log2": veclog.log2,
        "log10": veclog.log10,
        "log1p": veclog.log1p,
        "sin": vectrig.sin,
        "cos": vectrig.cos,
        "tan": vectrig.tan,
        "asin": vecarc.asin,
        "acos": vecarc.acos,
        "atan": vecarc.atan,
        "sinh": vechyper.sinh,
        "cosh": vechyper.cosh,
        "asinh": vechyper.asinh,
        "acosh": vechyper.acosh,
        "atanh": vechyper.atanh,
        "erf": vecmath.erf,
        "floor": floor,
        "ceil": ceil,
        "round": rint,
        "trunc": trunc,
    }.items()
}
