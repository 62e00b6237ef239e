"""Integer arithmetic of two values, in 64 bits; the caller flags results that do not fit a cell of 32.

Functions ``(x, z, flag)`` of int64 give an int64. Division rounds towards zero in ``div`` and ``fmod`` (as in
C, torch's fmod, ONNX's Div), towards minus infinity in ``floor_div`` and ``remainder`` (as in Python, torch,
ONNX's Mod). A division by zero is flagged too, and gives 0.
"""

from numba.extending import register_jitable

from bslite.kernels.cpu.runtime.flag import raise_flag


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
