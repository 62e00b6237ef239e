"""Operations on the lanes of registers: bits of floats, roundings, tests, one lane at a time.

The C library computes rare functions lane by lane, in float64; they are rounded once (`each_lane`).
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import register_jitable

from bslite.kernels.cpu.vector.simd import I32, I64, LANES, VEC, f32, fma_ir, i64, primitive, splat_ir, vec_t

I1 = ir.IntType(1)
ONES = np.float32(1.5 * 2**23)  # floats near it are 1 apart, and their low bits whole numbers
INTS = ir.VectorType(I32, LANES)
DOUBLES = ir.VectorType(ir.DoubleType(), LANES)
f = np.float32


def ints_of(builder, x):
    """The bits of float lanes as int32."""
    return builder.bitcast(x, INTS)


def all_ints(n):
    """A constant: ``n`` in every int32 lane."""
    return ir.Constant(INTS, [n] * LANES)


def all_floats(value):
    """A constant: ``value`` in every float32 lane."""
    return ir.Constant(VEC, [value] * LANES)


def all_doubles(value):
    """A constant: ``value`` in every float64 lane."""
    return ir.Constant(DOUBLES, [value] * LANES)


@primitive(f32, vec_t, i64)
def lane(builder, x, i):
    """The value of lane ``i``."""
    return builder.extract_element(x, builder.trunc(i, I32))


@primitive(vec_t, vec_t, i64, f32)
def with_lane(builder, x, i, value):
    """``x`` with another value in lane ``i``."""
    return builder.insert_element(x, value, builder.trunc(i, I32))


@primitive(types.boolean, vec_t, vec_t)
def all_less(builder, a, b):
    """Whether ``a < b`` in every lane; false if there is a NaN."""
    bits = builder.bitcast(builder.fcmp_ordered("<", a, b), ir.IntType(LANES))
    return builder.icmp_unsigned("==", bits, ir.Constant(ir.IntType(LANES), -1))


@primitive(i64, vec_t, f32)
def lanes_of(builder, x, value):
    """A number whose bits are the lanes that equal ``value``, or are NaN as it is."""
    wanted = splat_ir(builder, value)
    equal = builder.fcmp_ordered("==", x, wanted)
    both = builder.and_(builder.fcmp_unordered("uno", x, x), builder.fcmp_unordered("uno", wanted, wanted))
    return builder.zext(builder.bitcast(builder.or_(equal, both), ir.IntType(LANES)), I64)


@primitive(i64, vec_t, f32, types.boolean)
def lanes_before(builder, x, value, largest):
    """A number whose bits are the lanes that come before ``value`` where the largest, or the smallest, is
    first. NaN is the largest of all.
    """
    other = splat_ir(builder, value)
    number, numbers = (builder.fcmp_ordered("ord", v, v) for v in (other, x))
    above = builder.and_(builder.fcmp_unordered(">", x, other), number)
    below = builder.and_(builder.fcmp_unordered("<", x, other), numbers)
    return builder.zext(builder.bitcast(builder.select(largest, above, below), ir.IntType(LANES)), I64)


trailing_zeros = primitive(i64, i64)(lambda builder, bits: builder.cttz(bits, I1(0)))  # 64 of 0
leading_zeros = primitive(i64, i64)(lambda builder, bits: builder.ctlz(bits, I1(0)))


@primitive(vec_t, vec_t, vec_t, vec_t, vec_t)
def select_eq(builder, a, b, then, other):
    """``then`` where ``a == b``, ``other`` elsewhere (also where either is NaN)."""
    return builder.select(builder.fcmp_ordered("==", a, b), then, other)


@primitive(vec_t, vec_t, vec_t, vec_t, vec_t)
def select_above(builder, a, b, then, other):
    """``then`` where b is above a, a NaN above all else; ``other`` elsewhere, also where both are NaN."""
    above = builder.fcmp_unordered(">", b, a)
    return builder.select(builder.and_(above, builder.fcmp_ordered("ord", a, a)), then, other)


@primitive(vec_t, vec_t)
def blocked_where_zero(builder, cells):
    """-inf where the int32 in a lane is 0 (a false bool), 0.0 elsewhere: what a boolean mask adds."""
    false = builder.icmp_signed("==", ints_of(builder, cells), all_ints(0))
    return builder.select(false, all_floats(float("-inf")), all_floats(0.0))


@primitive(vec_t, vec_t)
def negated(builder, x):
    """``-x``: only the sign changes."""
    return builder.fneg(x)


@primitive(vec_t, vec_t, vec_t)
def with_sign_of(builder, y, x):
    """``y`` with the sign of ``x``, also of a zero."""
    sign = all_ints(-(1 << 31))
    kept = builder.and_(ints_of(builder, y), builder.not_(sign))
    return builder.bitcast(builder.or_(kept, builder.and_(ints_of(builder, x), sign)), VEC)


@primitive(vec_t, vec_t, vec_t, vec_t)
def select_negative(builder, x, then, other):
    """``then`` where the sign of ``x`` is set, also of a zero; ``other`` elsewhere."""
    below = builder.icmp_signed("<", ints_of(builder, x), all_ints(0))
    return builder.select(below, then, other)


_HALF_ROOT = 0x3F3504F3  # bits of sqrt(1/2)


def _exponent_ir(builder, x):
    """The exponent n as int32 lanes, with x / 2**n in [sqrt(1/2), sqrt(2))."""
    return builder.ashr(builder.sub(ints_of(builder, x), all_ints(_HALF_ROOT)), all_ints(23))


@primitive(vec_t, vec_t)
def exponent(builder, x):
    """The exponent n with ``x / 2**n`` in [sqrt(1/2), sqrt(2)), for normal x above zero."""
    return builder.sitofp(_exponent_ir(builder, x), VEC)


@primitive(vec_t, vec_t)
def mantissa(builder, x):
    """``x / 2**exponent(x)``, for normal x above zero."""
    shifted = builder.shl(_exponent_ir(builder, x), all_ints(23))
    return builder.bitcast(builder.sub(ints_of(builder, x), shifted), VEC)


@primitive(vec_t, vec_t, vec_t, vec_t)
def if_odd(builder, m, then, other):
    """``then`` where the lowest bit of ``m`` is set, ``other`` elsewhere."""
    bit = builder.and_(ints_of(builder, m), all_ints(1))
    return builder.select(builder.icmp_signed("!=", bit, all_ints(0)), then, other)


@primitive(vec_t, vec_t)
def whole_of(builder, x):
    """The int32 that each lane, a whole number, stands for, as a cell."""
    return builder.bitcast(builder.fptosi(x, INTS), VEC)


def polynomial(*coefficients):
    """A vector function: the polynomial with these float32 coefficients, the highest power first, by Horner's
    rule.
    """

    @primitive(vec_t, vec_t)
    def emit(builder, x):
        value, *rest = (all_floats(float(f(c))) for c in coefficients)
        for c in rest:
            value = fma_ir(builder, value, x, c)
        return value

    return emit


def each_lane(function):
    """A vector function of one argument: ``function`` of each lane in float64, rounded to float32."""

    @register_jitable
    def mapped(x):
        y = x
        for i in range(LANES):
            y = with_lane(y, i, f(function(np.float64(lane(x, i)))))
        return y

    return mapped


def each_pair(function):
    """A vector function of two arguments, lane by lane like `each_lane`."""

    @register_jitable
    def mapped(x, z):
        y = x
        for i in range(LANES):
            y = with_lane(y, i, f(function(np.float64(lane(x, i)), np.float64(lane(z, i)))))
        return y

    return mapped


def one_of_three(function):
    """``function`` of a register as a function of three, which ignores the others."""
    return register_jitable(lambda x, z, w: function(x))


def two_of_three(function):
    """``function`` of two registers as a function of three, which ignores the last."""
    return register_jitable(lambda x, z, w: function(x, z))
