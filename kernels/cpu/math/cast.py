"""Changes of dtype on registers: integers are int32 lanes, bools int32 0 or 1."""

import numpy as np
from numba import types
from numba.extending import register_jitable

from bslite.kernels.cpu.math.compare import as_lanes
from bslite.kernels.cpu.math.integer import OnLanes, all_lanes
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.vector.lanes import all_floats, all_ints, ints_of, one_of_three
from bslite.kernels.cpu.vector.simd import VEC, primitive, vec_t

EDGE = np.float32(2.0**31)


def _cast(emit):
    return one_of_three(primitive(vec_t, vec_t)(emit))


FUNCTIONS = {
    "int_to_float": _cast(lambda builder, x: builder.sitofp(ints_of(builder, x), VEC)),
    "float_to_bool": _cast(
        lambda builder, x: as_lanes(builder, builder.fcmp_unordered("!=", x, all_floats(0.0)))
    ),
    "int_to_bool": _cast(
        lambda builder, x: as_lanes(builder, builder.icmp_signed("!=", ints_of(builder, x), all_ints(0)))
    ),
}


@primitive(vec_t, vec_t, vec_t)
def _truncated(builder, x, z):
    return builder.bitcast(builder.fptosi(x, ints_of(builder, x).type), VEC)


@primitive(types.boolean, vec_t, vec_t)
def _has_integers(builder, x, z):
    low, high = (builder.fcmp_ordered(op, x, all_floats(edge)) for op, edge in ((">=", -EDGE), ("<", EDGE)))
    return all_lanes(builder, builder.and_(low, high))


#: `float_to_int` of a register whose lanes all fit.
TO_INT = OnLanes(_truncated, _has_integers)


@register_jitable
def float_to_int(x, z, flag):
    """Rounds towards zero. Values that do not fit 32 bits, and NaN, are flagged and give 0."""
    if x >= -EDGE and x < EDGE:
        return np.int64(x)
    raise_flag(flag, 0)
    return np.int64(0)
