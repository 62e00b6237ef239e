"""Registers of int32 lanes that hold quads: four numbers of 0 to 255, or four weights of int8."""

from llvmlite import ir
from numba import types

from bslite.kernels.cpu.vector.lanes import INTS, all_ints
from bslite.kernels.cpu.vector.pairs import HALVES, I16, multiply_ir, nearest, settled
from bslite.kernels.cpu.vector.simd import I32, I64, LANES, VEC, call_llvm, i64, pointer, primitive, vec_t
from bslite.kernels.cpu.vector.target import MULTIPLY, X86, has_dots

I8 = ir.IntType(8)
BYTES_OF_LANES = ir.VectorType(I8, 4 * LANES)
#: The instruction that multiplies unsigned by signed bytes and adds two products in 16 bits, saturating.
MULTIPLY_BYTES = {8: "llvm.x86.avx2.pmadd.ub.sw", 16: "llvm.x86.avx512.pmaddubs.w.512"}
#: Whether `quad_dot_ir` is exact only where two products of a pair of weights fit 16 bits.
SATURATES = X86 and LANES in MULTIPLY_BYTES and not has_dots()


def quad_dot_ir(builder, total, a, b):
    """``total`` plus four products of bytes in each lane, unsigned ones of ``a`` by signed ones of ``b``."""
    if has_dots():
        return call_llvm(builder, f"llvm.x86.avx512.vpdpbusd.{32 * LANES}", INTS, [total, a, b])
    if SATURATES:
        given = [builder.bitcast(x, BYTES_OF_LANES) for x in (a, b)]
        twos = call_llvm(builder, MULTIPLY_BYTES[LANES], HALVES, given)
        ones = ir.Constant(HALVES, [1] * (2 * LANES))
        products = call_llvm(builder, f"llvm.{MULTIPLY[LANES]}", INTS, [twos, ones])
        return settled(builder, builder.add(total, products))
    low, eight = all_ints(0x00FF00FF), ir.Constant(HALVES, [8] * (2 * LANES))
    even, odd = builder.and_(a, low), builder.and_(builder.lshr(a, all_ints(8)), low)
    halves = builder.bitcast(b, HALVES)
    evens = builder.bitcast(builder.ashr(builder.shl(halves, eight), eight), INTS)
    odds = builder.bitcast(builder.ashr(halves, eight), INTS)
    products = builder.add(multiply_ir(builder, even, evens), multiply_ir(builder, odd, odds))
    return settled(builder, builder.add(total, products))


@primitive(vec_t, i64)
def load_bytes(builder, address):
    """As many neighbouring numbers of 0 to 255 as a register has lanes, as float32."""
    given = builder.load(pointer(builder, address, ir.VectorType(I8, LANES)), align=1)
    return builder.sitofp(builder.zext(given, INTS), VEC)


def _bytes_of(builder, a, b, least):
    """The lanes of ``a`` and then of ``b``, rounded to even, less ``least``, as bytes that hold them."""
    under = builder.fptosi(least, INTS)
    ints = [builder.sub(nearest(builder, x), under) for x in (a, b)]
    if X86 and LANES == 8:  # packs within halves of the register
        halves = call_llvm(builder, "llvm.x86.avx2.packssdw", HALVES, ints)
        quarters = builder.bitcast(halves, ir.VectorType(I64, 4))
        parts = [
            builder.shuffle_vector(quarters, quarters, ir.Constant(ir.VectorType(I32, 2), lanes))
            for lanes in ([0, 2], [1, 3])
        ]
        parts = [builder.bitcast(x, ir.VectorType(I16, 8)) for x in parts]
        return call_llvm(builder, "llvm.x86.sse2.packuswb.128", ir.VectorType(I8, 16), parts)
    order = ir.Constant(ir.VectorType(I32, 2 * LANES), list(range(2 * LANES)))
    return builder.trunc(builder.shuffle_vector(*ints, order), ir.VectorType(I8, 2 * LANES))


@primitive(types.void, i64, vec_t, vec_t, vec_t)
def store_quads(builder, address, a, b, least):
    """Writes two registers of whole numbers, less ``least``, as bytes."""
    made = _bytes_of(builder, a, b, least)
    builder.store(made, pointer(builder, address, made.type), align=4)


@primitive(vec_t, vec_t, vec_t, vec_t)
def quads_of(builder, a, b, least):
    """The same as the first half of a register, zeros in the rest."""
    made = _bytes_of(builder, a, b, least)
    zeros = ir.Constant(made.type, [0] * made.type.count)
    order = ir.Constant(ir.VectorType(I32, 4 * LANES), list(range(4 * LANES)))
    return builder.bitcast(builder.shuffle_vector(made, zeros, order), VEC)
