"""Functions of up to three 4-byte cells, ``(x, z, w, flag)``: arithmetic, comparisons, logic, casts.

Cells are int32; a float32 is reinterpreted as one. Integers are computed in 64 bits and flagged where the
result does not fit a cell (their definitions: kernels/cpu/math/integer.py).
"""

from operator import add, and_, eq, ge, gt, le, lt, mul, ne, or_, sub, xor

import numpy as np

from bslite.kernels.contracts import elementwise as contract
from bslite.kernels.contracts.table import complete
from bslite.kernels.cuda.math.functions import erf, sigmoid
from bslite.kernels.cuda.math.libm import (
    as_float,
    as_int,
    atan2,
    exp,
    fma,
    fmod,
    larger,
    log1p,
    magnitude,
    minus,
    plus,
    quotient,
    smaller,
    times,
)
from bslite.kernels.cuda.math.libm import pow as power
from bslite.kernels.cuda.runtime.device import device_function
from bslite.kernels.cuda.runtime.flag import raise_flag

f = np.float32
i32, i64 = np.int32, np.int64
ONE, ZERO = np.int32(1), np.int32(0)


@device_function
def _remainder(x, z):
    rest = fmod(x, z)
    if rest != f(0.0) and (rest < f(0.0)) != (z < f(0.0)):
        rest = plus(rest, z)
    return rest


@device_function
def _logaddexp(x, z):
    if x == z:  # the difference of equal infinities is NaN
        return plus(x, f(0.69314718056))
    return plus(larger(x, z), log1p(exp(-magnitude(minus(x, z)))))


@device_function
def _prelu(x, z):
    return x if x > f(0.0) else times(x, z)


@device_function
def _relu_grad(g, x):
    return f(0.0) if x <= f(0.0) else g


@device_function
def _relu6_grad(g, x):
    return g if x > f(0.0) and x < f(6.0) else f(0.0)


@device_function
def _silu_grad(g, x):
    s = sigmoid(x, f(0.0), f(0.0))
    return times(g, times(s, plus(f(1.0), times(x, minus(f(1.0), s)))))


@device_function
def _hardswish_grad(g, x):
    if x <= f(-3.0):
        return f(0.0)
    return g if x >= f(3.0) else times(g, plus(quotient(x, f(3.0)), f(0.5)))


@device_function
def _gelu_grad(g, x):
    half, density = f(0.5), exp(times(times(x, x), f(-0.5)))
    below = times(half, plus(f(1.0), erf(times(x, f(0.7071067811865476)))))
    return times(g, plus(below, times(times(x, density), f(0.3989422804014327))))


@device_function
def _gelu_tanh_grad(g, x):
    square = times(x, x)
    z = times(times(x, plus(f(1.0), times(square, f(0.044715)))), f(1.5957691216057308))
    s, dz = sigmoid(z, f(0.0), f(0.0)), times(plus(f(1.0), times(square, f(0.134145))), f(1.5957691216057308))
    return times(g, times(s, plus(f(1.0), times(times(x, minus(f(1.0), s)), dz))))


#: The functions of two float32.
FLOATS = {
    "add": plus,
    "sub": minus,
    "mul": times,
    "div": quotient,
    "pow": power,
    "maximum": larger,
    "minimum": smaller,
    "fmod": fmod,
    "remainder": _remainder,
    "atan2": atan2,
    "logaddexp": _logaddexp,
    "prelu": _prelu,
    "relu_grad": _relu_grad,
    "relu6_grad": _relu6_grad,
    "silu_grad": _silu_grad,
    "hardswish_grad": _hardswish_grad,
    "gelu_grad": _gelu_grad,
    "gelu_tanh_grad": _gelu_tanh_grad,
}


def _of_floats(function):
    @device_function
    def apply(x, z, w, flag):
        return as_int(function(as_float(x), as_float(z)))

    return apply


@device_function
def _copy(x, z, w, flag):
    return x


@device_function
def _affine(x, z, w, flag):
    return as_int(fma(as_float(x), as_float(z), as_float(w)))


#: The comparisons of two values, in the contract's order.
ORDERS = dict(zip(contract.ORDERS, (eq, ne, lt, le, gt, ge), strict=True))


def _of_order(order, integers):
    @device_function
    def of_floats(x, z, w, flag):
        return ONE if order(as_float(x), as_float(z)) else ZERO

    @device_function
    def of_integers(x, z, w, flag):
        return ONE if order(x, z) else ZERO

    return of_integers if integers else of_floats


def _of_bits(function):
    @device_function
    def apply(x, z, w, flag):
        return i32(function(x, z))

    return apply


@device_function
def _not(x, z, w, flag):
    return i32(x ^ ONE)


@device_function
def _flip(x, z, w, flag):
    return i32(~x)


@device_function
def _where(x, z, w, flag):
    return z if x != ZERO else w


@device_function
def _isnan(x, z, w, flag):
    return ONE if as_float(x) != as_float(x) else ZERO


@device_function
def _isinf_negative(x, z, w, flag):
    return ONE if x == i32(-0x800000) else ZERO


@device_function
def _isinf_positive(x, z, w, flag):
    return ONE if x == i32(0x7F800000) else ZERO


@device_function
def _isinf_both(x, z, w, flag):
    return ONE if x == i32(0x7F800000) or x == i32(-0x800000) else ZERO


@device_function
def _never(x, z, w, flag):
    return ZERO


@device_function
def _float_to_int(x, z, w, flag):
    v = as_float(x)
    if v >= f(-(2.0**31)) and v < f(2.0**31):
        return i32(v)
    raise_flag(flag, i64(0))
    return ZERO


@device_function
def _int_to_float(x, z, w, flag):
    return as_int(f(x))


@device_function
def _float_to_bool(x, z, w, flag):
    return ZERO if as_float(x) == f(0.0) else ONE


@device_function
def _int_to_bool(x, z, w, flag):
    return ZERO if x == ZERO else ONE


def _unflagged(function):
    @device_function
    def apply(x, z, flag):
        return function(x, z)

    return apply


@device_function
def _int_maximum(x, z, flag):
    return x if x > z else z


@device_function
def _int_minimum(x, z, flag):
    return x if x < z else z


@device_function
def _int_div(x, z, flag):
    if z == 0:
        raise_flag(flag, x)
        return i64(0)
    size = (x if x > 0 else -x) // (z if z > 0 else -z)
    return size if (x < 0) == (z < 0) else -size


@device_function
def _int_fmod(x, z, flag):
    return x - _int_div(x, z, flag) * z


@device_function
def _int_floor_div(x, z, flag):
    towards_zero = _int_div(x, z, flag)
    if z != 0 and towards_zero * z != x and (x < 0) != (z < 0):
        return towards_zero - 1
    return towards_zero


@device_function
def _int_remainder(x, z, flag):
    if z == 0:
        raise_flag(flag, x)
        return i64(0)
    return x - _int_floor_div(x, z, flag) * z


@device_function
def _int_pow(x, z, flag):
    if z < 0:
        raise_flag(flag, z)
        return i64(0)
    if x == 0 or x == 1 or x == -1:  # every power fits
        return i64(1) if z == 0 or x == 1 or (x == -1 and z % 2 == 0) else x
    result = i64(1)
    for _ in range(z if z < 33 else 33):  # for |x| of 2 or more, the 32nd power does not fit
        result *= x
        if result > 4294967296 or result < -4294967296:
            break
    return result


def _of_integers(function):
    @device_function
    def apply(x, z, w, flag):
        made = function(i64(x), i64(z), flag)
        if made < -2147483648 or made > 2147483647:
            raise_flag(flag, made)
        return i32(made)

    return apply


INTEGERS = {
    "add": _unflagged(add),
    "sub": _unflagged(sub),
    "mul": _unflagged(mul),
    "maximum": _int_maximum,
    "minimum": _int_minimum,
    "floor_div": _int_floor_div,
    "remainder": _int_remainder,
    "div": _int_div,
    "fmod": _int_fmod,
    "pow": _int_pow,
}

#: The functions by their names in the contract.
FUNCTIONS = complete({
    "copy": _copy,
    "affine": _affine,
    **{name: _of_floats(function) for name, function in FLOATS.items()},
    **{
        contract.ordering(name, integers): _of_order(order, integers)
        for integers in (False, True)
        for name, order in ORDERS.items()
    },
    "and": _of_bits(and_),
    "or": _of_bits(or_),
    "xor": _of_bits(xor),
    "not": _not,
    "not_int": _flip,
    "where": _where,
    "isnan": _isnan,
    "isinf_both": _isinf_both,
    "isinf_negative": _isinf_negative,
    "isinf_positive": _isinf_positive,
    "isinf_neither": _never,
    "float_to_int": _float_to_int,
    "int_to_float": _int_to_float,
    "float_to_bool": _float_to_bool,
    "int_to_bool": _int_to_bool,
    **{contract.on_integers(name): _of_integers(function) for name, function in INTEGERS.items()},
}, contract.FUNCTIONS, "GPU")  # fmt: skip
