"""Powers of two, quotients and roots of registers, in the few instructions that a machine has for them."""

import math

import numpy as np
from llvmlite import ir

from bslite.kernels.cpu.vector.across import picked_ir
from bslite.kernels.cpu.vector.lanes import INTS, all_floats, all_ints, ints_of
from bslite.kernels.cpu.vector.simd import I32, LANES, VEC, call_llvm, fma_ir, llvm_of_lanes, primitive, vec_t
from bslite.kernels.cpu.vector.target import divides, picks_powers

#: Parts of an exponent: the fractions of powers of two that a register holds, or 1, where none does.
STEPS = LANES if picks_powers() else 1


def pow2_ir(builder, n):
    """``2**n`` for integral ``n`` in [-126, 127], by writing the exponent bits."""
    biased = builder.add(builder.fptosi(n, INTS), all_ints(127))
    return builder.bitcast(builder.shl(biased, all_ints(23)), VEC)


pow2 = primitive(vec_t, vec_t)(pow2_ir)


def _exponent_bits(builder, n, bias):
    """``2**(k + bias)`` for the integer k in the low bits of the int32 lanes ``n``."""
    bits = builder.shl(n, all_ints(23))
    return builder.bitcast(builder.add(bits, all_ints((127 + bias) << 23)), VEC)


@primitive(vec_t, vec_t, vec_t, vec_t)
def times_pow2(builder, x, m, n):
    """``x * 2**n`` for integral ``n`` in [-252, 254], through overflow to inf and underflow to 0. Where there
    are `STEPS`, n is rounded down.

    ``m`` is n plus 1.5 * 2**23, as `vecmath` rounds: the low bits of that float are those of the integer n.
    """
    if LANES == 16:  # AVX-512 has an instruction, which rounds n down
        flat = ir.Constant(ir.IntType(16), -1)
        rounding = ir.Constant(I32, 4)  # rounding mode: to nearest
        return call_llvm(builder, "llvm.x86.avx512.mask.scalef.ps.512", VEC, [x, n, x, flat, rounding])
    # Two factors: n exceeds one exponent field. The bits of m above those of n are shifted out.
    whole = ints_of(builder, m)
    half = builder.ashr(whole, all_ints(1))
    rest = builder.sub(whole, half)
    once = builder.fmul(x, _exponent_bits(builder, half, 0))
    return builder.fmul(once, _exponent_bits(builder, rest, 0))


def times_normal_pow2(bias):
    """A vector function of x and m: ``x * 2**(n + bias)`` for n + bias in [-126, 127]; see `times_pow2`."""

    @primitive(vec_t, vec_t, vec_t)
    def emit(builder, x, m):
        return builder.fmul(x, _exponent_bits(builder, ints_of(builder, m), bias))

    return emit


def _root_ir(builder, m):
    """``2**(j / STEPS)`` in [1, 2), for the number j of steps in the lowest bits of m."""
    roots = ir.Constant(VEC, np.exp2(np.arange(LANES) / STEPS).astype(np.float32).tolist())
    return picked_ir(builder, roots, ints_of(builder, m))


root = primitive(vec_t, vec_t)(_root_ir)


@primitive(vec_t, vec_t)
def power(builder, m):
    """``2**(k / STEPS)`` for the integer k in the low bits of m, where that is normal; 0 for 2**-127, and one
    between 0 and 2**-126 for powers between the two.
    """
    whole = builder.and_(ints_of(builder, m), all_ints(-STEPS))
    exponent = builder.shl(whole, all_ints(23 - STEPS.bit_length() + 1))
    return builder.bitcast(builder.add(ints_of(builder, _root_ir(builder, m)), exponent), VEC)


@primitive(vec_t, vec_t, vec_t)
def add_exponent(builder, x, m):
    """``x * 2**k`` for the integer k in the low bits of m, if x and the result are normal; a NaN may become a
    number.
    """
    bits = builder.add(ints_of(builder, x), builder.shl(ints_of(builder, m), all_ints(23)))
    return builder.bitcast(bits, VEC)


def _approximation(builder, name, x):
    """14 bits of the reciprocal (``rcp``) of ``x``, or of that of its root (``rsqrt``)."""
    flat = ir.Constant(ir.IntType(16), -1)
    return call_llvm(builder, f"llvm.x86.avx512.{name}14.ps.512", VEC, [x, x, flat])


@primitive(vec_t, vec_t, vec_t)
def quotient(builder, a, b):
    """``a / b`` for ``|b|`` in [2**-100, 2**100]: within 0.6 units in the last place; NaN gives NaN.

    Where the instruction takes longer (Intel's: 16 cycles for 16 lanes), an approximate reciprocal r, 14 bits
    of it, gives a first quotient; its remainder times r is added, so that the error of r enters squared.
    """
    if divides():
        return builder.fdiv(a, b)
    r = _approximation(builder, "rcp", b)
    first = builder.fmul(a, r)
    rest = fma_ir(builder, builder.fneg(first), b, a)
    return fma_ir(builder, rest, r, first)


def _unless_nan(builder, y, rough):
    """``y``, but ``rough`` where y is NaN: where a correction met a zero or an infinity."""
    return builder.select(builder.fcmp_unordered("uno", y, y), rough, y)


@primitive(vec_t, vec_t, vec_t)
def rough_quotient(builder, a, b):
    """``a / b``, perhaps only 13 bits of it."""
    if divides():
        return builder.fdiv(a, b)
    return builder.fmul(a, _approximation(builder, "rcp", b))


@primitive(vec_t, vec_t)
def reciprocal(builder, x):
    """``1 / x`` within 0.6 units in the last place; subnormal results within two."""
    one = all_floats(1.0)
    if divides():
        return builder.fdiv(one, x)
    r = _approximation(builder, "rcp", x)
    rest = fma_ir(builder, builder.fneg(r), x, one)
    y = fma_ir(builder, fma_ir(builder, rest, rest, rest), r, r)  # of r / (1 - rest)
    return _unless_nan(builder, y, r)


@primitive(vec_t, vec_t)
def reciprocal_root(builder, x):
    """``1 / sqrt(x)`` within 1.5 units in the last place."""
    if divides():
        return builder.fdiv(all_floats(1.0), llvm_of_lanes(builder, "sqrt", x))
    r = _approximation(builder, "rsqrt", x)
    rest = fma_ir(builder, builder.fneg(builder.fmul(x, r)), r, all_floats(1.0))
    half = fma_ir(builder, rest, all_floats(0.375), all_floats(0.5))
    more = builder.fmul(rest, half)  # (1 - rest)**-1/2 - 1
    return _unless_nan(builder, fma_ir(builder, more, r, r), r)


@primitive(vec_t, vec_t)
def square_root(builder, x):
    """``sqrt(x)``, rounded to nearest but for subnormal x, of which it may be the next.

    Two corrections of ``x / sqrt(x)`` (Markstein, IBM J. Res. Dev. 34(1), 1990).
    """
    if divides():
        return llvm_of_lanes(builder, "sqrt", x)
    r = _approximation(builder, "rsqrt", x)
    root, half = builder.fmul(x, r), builder.fmul(r, all_floats(0.5))
    rest = fma_ir(builder, builder.fneg(root), half, all_floats(0.5))
    root, half = fma_ir(builder, root, rest, root), fma_ir(builder, half, rest, half)
    rest = fma_ir(builder, builder.fneg(root), root, x)
    root = fma_ir(builder, rest, half, root)
    end = builder.or_(
        builder.fcmp_ordered("==", x, all_floats(0.0)), builder.fcmp_ordered("==", x, all_floats(math.inf))
    )
    return builder.select(end, x, root)
