"""Powers of two and quotients of registers, in the few instructions that a machine has for them."""

from llvmlite import ir

from bslite.kernels.cpu.vector.lanes import INTS, all_floats, all_ints
from bslite.kernels.cpu.vector.simd import I32, LANES, VEC, call_llvm, fma_ir, llvm_of_lanes, primitive, vec_t


def pow2_ir(builder, n):
    """``2**n`` for integral ``n`` in [-126, 127], by writing the exponent bits."""
    biased = builder.add(builder.fptosi(n, INTS), all_ints(127))
    return builder.bitcast(builder.shl(biased, all_ints(23)), VEC)


pow2 = primitive(vec_t, vec_t)(pow2_ir)


@primitive(vec_t, vec_t, vec_t)
def times_pow2(builder, x, n):
    """``x * 2**n`` for integral ``n`` in [-252, 254], through overflow to inf and underflow to 0."""
    if LANES == 16:  # AVX-512 has an instruction
        flat = ir.Constant(ir.IntType(16), -1)
        rounding = ir.Constant(I32, 4)  # rounding mode: to nearest
        return call_llvm(builder, "llvm.x86.avx512.mask.scalef.ps.512", VEC, [x, n, x, flat, rounding])
    # Two factors: n exceeds one exponent field.
    half = llvm_of_lanes(builder, "rint", builder.fmul(n, all_floats(0.5)))
    rest = builder.fsub(n, half)
    return builder.fmul(builder.fmul(x, pow2_ir(builder, half)), pow2_ir(builder, rest))


@primitive(vec_t, vec_t, vec_t)
def quotient(builder, a, b):
    """``a / b`` for ``|b|`` in [2**-100, 2**100]: within 0.6 units in the last place; NaN gives NaN.

    AVX-512 divides one register in 16 cycles. An approximate reciprocal r, 14 bits of it, gives a first
    quotient; its remainder times r is added, so that the error of r enters squared.
    """
    if LANES != 16:
        return builder.fdiv(a, b)
    flat = ir.Constant(ir.IntType(16), -1)
    r = call_llvm(builder, "llvm.x86.avx512.rcp14.ps.512", VEC, [b, b, flat])
    first = builder.fmul(a, r)
    rest = fma_ir(builder, builder.fneg(first), b, a)
    return fma_ir(builder, rest, r, first)
