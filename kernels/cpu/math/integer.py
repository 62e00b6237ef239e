"""Integer arithmetic of two values, in 64 bits; the caller flags results that do not fit a cell of 32.

Functions ``(x, z, flag)`` of int64 give an int64. Division rounds towards zero in ``div`` and ``fmod`` (as in
C, torch's fmod, ONNX's Div), towards minus infinity in ``floor_div`` and ``remainder`` (as in Python, torch,
ONNX's Mod). A division by zero is flagged too, and gives 0.
"""

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import register_jitable

from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.vector.lanes import ints_of
from bslite.kernels.cpu.vector.simd import I64, LANES, VEC, primitive, vec_t


@register_jitable
def _floor_div(x, z, flag):
    if z == 0:
        raise_flag(flag, x)
        return 0
    return x // z


@register_jitable
def _remainder(x, z, flag):
    if z == 0:
        raise_flag(flag, x)
        return 0
    return x - (x // z) * z


@register_jitable
def _div(x, z, flag):
    if z == 0:
        raise_flag(flag, x)
        return 0
    quotient = abs(x) // abs(z)
    return quotient if (x < 0) == (z < 0) else -quotient


@register_jitable
def _pow(x, z, flag):
    if z < 0:
        raise_flag(flag, z)
        return 0
    result, base = 1, x
    if x == 0 or x == 1 or x == -1:  # every power fits
        return 1 if z == 0 or x == 1 or (x == -1 and z % 2 == 0) else x
    for _ in range(min(z, 33)):  # for |x| >= 2, the 32nd power does not fit
        result *= base
        if result > 4294967296 or result < -4294967296:
            break
    return result


FUNCTIONS = {
    "add": register_jitable(lambda x, z, flag: x + z),
    "sub": register_jitable(lambda x, z, flag: x - z),
    "mul": register_jitable(lambda x, z, flag: x * z),
    "maximum": register_jitable(lambda x, z, flag: max(x, z)),
    "minimum": register_jitable(lambda x, z, flag: min(x, z)),
    "floor_div": _floor_div,
    "remainder": _remainder,
    "div": _div,
    "fmod": register_jitable(lambda x, z, flag: x - _div(x, z, flag) * z),
    "pow": _pow,
}


class OnLanes(NamedTuple):
    """A function of two registers of cells, and whether no lane of its result is to be flagged."""

    made: Any
    fits: Any


def all_lanes(builder, condition):
    """Whether a condition holds in every lane."""
    return builder.icmp_unsigned(
        "==", builder.bitcast(condition, ir.IntType(LANES)), ir.Constant(ir.IntType(LANES), -1)
    )


def _on_lanes(operate):
    """``operate(builder, x, z)`` of lanes of 64 bits, on cells."""
    wide = ir.VectorType(I64, LANES)

    def both(builder, x, z):
        exact = operate(builder, *(builder.sext(ints_of(builder, v), wide) for v in (x, z)))
        return exact, builder.trunc(exact, ints_of(builder, x).type)

    @primitive(vec_t, vec_t, vec_t)
    def made(builder, x, z):
        return builder.bitcast(both(builder, x, z)[1], VEC)

    @primitive(types.boolean, vec_t, vec_t)
    def fits(builder, x, z):
        exact, cells = both(builder, x, z)
        return all_lanes(builder, builder.icmp_signed("==", builder.sext(cells, wide), exact))

    return OnLanes(made, fits)


#: The same functions on registers; what does not fit is computed cell by cell.
ON_LANES = {
    "add": _on_lanes(lambda builder, x, z: builder.add(x, z)),
    "sub": _on_lanes(lambda builder, x, z: builder.sub(x, z)),
    "mul": _on_lanes(lambda builder, x, z: builder.mul(x, z)),
    "maximum": _on_lanes(lambda builder, x, z: builder.select(builder.icmp_signed(">", x, z), x, z)),
    "minimum": _on_lanes(lambda builder, x, z: builder.select(builder.icmp_signed("<", x, z), x, z)),
}
