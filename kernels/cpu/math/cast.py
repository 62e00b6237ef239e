"""Changes of dtype on registers: integers are int32 lanes, bools int32 0 or 1."""

import numpy as np
from llvmlite import ir
from numba.extending import register_jitable

from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.vector.lanes import INTS, all_ints, ints_of
from bslite.kernels.cpu.vector.simd import LANES, VEC, primitive, vec_t

EDGE = np.float32(2.0**31)


@primitive(vec_t, vec_t)
def _int_to_float(builder, x):
    return builder.sitofp(ints_of(builder, x), VEC)


@primitive(vec_t, vec_t)
def _float_to_bool(builder, x):
    zero = ir.Constant(VEC, [0.0] * LANES)
    return builder.bitcast(builder.zext(builder.fcmp_unordered("!=", x, zero), INTS), VEC)


@primitive(vec_t, vec_t)
def _int_to_bool(builder, x):
    mask = builder.icmp_signed("!=", ints_of(builder, x), all_ints(0))
    return builder.bitcast(builder.zext(mask, INTS), VEC)


def _of_one(function):
    @register_jitable
    def apply(x, z, w):
        return function(x)

    return apply


FUNCTIONS = {
    "int_to_float": _of_one(_int_to_float),
    "float_to_bool": _of_one(_float_to_bool),
    "int_to_bool": _of_one(_int_to_bool),
}


@register_jitable
def float_to_int(x, z, flag):
    """Rounds towards zero. Values that do not fit 32 bits, and NaN, are flagged and give 0."""
    if x >= -EDGE and x < EDGE:
        return np.int64(x)
    raise_flag(flag, 0)
    return np.int64(0)
