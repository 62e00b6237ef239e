"""``x ** y`` on vector registers: the logarithm in float64, where its error times y is still negligible.

Within 0.6 units in the last place of float32; special values as C99's pow (Annex F.10.4.4), tested against it
(tests/kernels/test_vecpairs.py).
"""

import math

from llvmlite import ir

from bslite.kernels.cpu.vector.lanes import DOUBLES, INTS, all_doubles, all_floats, all_ints
from bslite.kernels.cpu.vector.simd import LANES, VEC, llvm_of_lanes, primitive, vec_t

LONGS = ir.VectorType(ir.IntType(64), LANES)
_HALF_ROOT = 0x3FE6A09E667F3BCD  # bits of sqrt(1/2) in float64


def _all_longs(n):
    return ir.Constant(LONGS, [n] * LANES)


def _polynomial(builder, x, coefficients):
    """Horner's rule in float64, the highest power first."""
    value = all_doubles(coefficients[0])
    for c in coefficients[1:]:
        value = builder.fadd(builder.fmul(value, x), all_doubles(c))
    return value


def _log2(builder, x):
    """log2 of finite float64 lanes above zero: ``n + 2/ln2 * atanh((m - 1) / (m + 1))``, off by 2**-44."""
    bits = builder.bitcast(x, LONGS)
    n = builder.ashr(builder.sub(bits, _all_longs(_HALF_ROOT)), _all_longs(52))
    m = builder.bitcast(builder.sub(bits, builder.shl(n, _all_longs(52))), DOUBLES)
    s = builder.fdiv(builder.fsub(m, all_doubles(1.0)), builder.fadd(m, all_doubles(1.0)))
    series = _polynomial(
        builder, builder.fmul(s, s), [2 / math.log(2) / k for k in (15, 13, 11, 9, 7, 5, 3, 1)]
    )
    return builder.fadd(builder.sitofp(builder.trunc(n, INTS), DOUBLES), builder.fmul(s, series))


def _exp2(builder, t):
    """``2**t`` in float64 for t in [-1000, 1000]: Taylor's series for the fraction, off by 2**-38."""
    n = llvm_of_lanes(builder, "rint", t)
    log2 = math.log(2)
    series = [log2**k / math.factorial(k) for k in range(9, -1, -1)]
    value = _polynomial(builder, builder.fsub(t, n), series)
    power = builder.sext(builder.add(builder.fptosi(n, INTS), all_ints(1023)), LONGS)
    return builder.fmul(value, builder.bitcast(builder.shl(power, _all_longs(52)), DOUBLES))


@primitive(vec_t, vec_t, vec_t)
def power(builder, x, y):
    """``x ** y``."""

    def same(a, b):
        return builder.fcmp_ordered("==", a, b)

    def whole(v):
        return same(llvm_of_lanes(builder, "rint", v), v)

    zero, one, inf = (all_floats(v) for v in (0.0, 1.0, math.inf))
    size = llvm_of_lanes(builder, "fabs", x)
    wide = builder.fpext(size, DOUBLES)
    log = _log2(builder, wide)
    log = builder.select(same(size, zero), all_doubles(-math.inf), log)
    log = builder.select(builder.fcmp_ordered("<", size, inf), log, wide)  # infinity and NaN pass through
    t = builder.fmul(builder.fpext(y, DOUBLES), log)
    for bound, less in ((200.0, ">"), (-200.0, "<")):
        t = builder.select(builder.fcmp_ordered(less, t, all_doubles(bound)), all_doubles(bound), t)
    nan = builder.fcmp_unordered("uno", t, t)
    value = _exp2(builder, builder.select(nan, all_doubles(0.0), t))
    value = builder.fptrunc(builder.select(nan, t, value), VEC)
    half = builder.fmul(y, all_floats(0.5))
    odd = builder.and_(whole(y), builder.not_(whole(half)))
    minus = builder.icmp_signed("<", builder.bitcast(x, INTS), all_ints(0))
    value = builder.select(builder.and_(odd, minus), builder.fneg(value), value)
    below = builder.and_(builder.fcmp_ordered("<", x, zero), builder.fcmp_ordered(">", x, builder.fneg(inf)))
    no_root = builder.and_(below, builder.not_(whole(y)))
    value = builder.select(no_root, all_floats(math.nan), value)
    sizes_y = llvm_of_lanes(builder, "fabs", y)
    ones = builder.and_(same(size, one), same(sizes_y, inf))
    for always_one in (same(y, zero), same(x, one), ones):
        value = builder.select(always_one, one, value)
    return value
