"""Registers of int32 lanes that hold pairs of int16: products, and the way from and to float32."""

from llvmlite import ir
from numba import types

from bslite.kernels.cpu.vector.lanes import INTS, all_floats, all_ints, ints_of
from bslite.kernels.cpu.vector.simd import (
    F32,
    I32,
    I64,
    LANES,
    VEC,
    call_llvm,
    f32,
    first_lanes,
    i64,
    llvm_of_lanes,
    pointer,
    primitive,
    splat_ir,
    vec_t,
    vmax_ir,
    vmin_ir,
)
from bslite.kernels.cpu.vector.target import MULTIPLY, X86, has_dots

I16 = ir.IntType(16)
HALVES = ir.VectorType(I16, 2 * LANES)


def load_ints(builder, address):
    """A register of int32 from an address of any alignment."""
    return builder.load(pointer(builder, address, INTS), align=4)


def load_widened(builder, address):
    """A register of pairs from as many numbers of int8."""
    numbers = builder.load(pointer(builder, address, ir.VectorType(ir.IntType(8), 2 * LANES)), align=1)
    return builder.bitcast(builder.sext(numbers, HALVES), INTS)


def dot_ir(builder, total, a, b):
    """``total`` plus the products of two registers of pairs."""
    if has_dots():
        return call_llvm(builder, f"llvm.x86.avx512.vpdpwssd.{32 * LANES}", INTS, [total, a, b])
    return settled(builder, builder.add(total, multiply_ir(builder, a, b)))


def multiply_ir(builder, a, b):
    """``a.lower * b.lower + a.upper * b.upper`` in int32 lanes."""
    if X86:
        return call_llvm(
            builder, f"llvm.{MULTIPLY[LANES]}", INTS, [builder.bitcast(x, HALVES) for x in (a, b)]
        )
    shift = all_ints(16)
    upper = builder.mul(builder.ashr(a, shift), builder.ashr(b, shift))
    lower = builder.mul(*(builder.ashr(builder.shl(x, shift), shift) for x in (a, b)))
    return builder.add(lower, upper)


def settled(builder, x):
    """The same register, through an empty piece of assembly.

    Additions of integers may be done in any order; LLVM would first add the products of several steps, and
    keep them in memory.
    """
    return builder.asm(ir.FunctionType(INTS, [INTS]), "", "=x,0", [x], side_effect=False) if X86 else x


@primitive(vec_t, vec_t)
def real_of(builder, x):
    """The int32 in each lane as a float32, rounded once."""
    return builder.sitofp(ints_of(builder, x), VEC)


@primitive(vec_t, i64)
def load_halves(builder, address):
    """As many neighbouring numbers of int16 as a register has lanes, as float32."""
    halves = builder.load(pointer(builder, address, ir.VectorType(I16, LANES)), align=2)
    return builder.sitofp(builder.sext(halves, INTS), VEC)


def _join(builder, ints):
    """Two registers of int32, which int16 holds, as one of pairs."""
    if X86 and LANES == 8:  # packs within halves of the register
        halves = call_llvm(builder, "llvm.x86.avx2.packssdw", HALVES, ints)
        quarters = builder.bitcast(halves, ir.VectorType(I64, 4))
        order = ir.Constant(ir.VectorType(I32, 4), [0, 2, 1, 3])
        return builder.bitcast(builder.shuffle_vector(quarters, quarters, order), VEC)
    order = ir.Constant(ir.VectorType(I32, 2 * LANES), list(range(2 * LANES)))
    return builder.bitcast(builder.trunc(builder.shuffle_vector(*ints, order), HALVES), VEC)


def nearest(builder, x):
    """The nearest integers, of two the even one, of numbers that int16 holds."""
    if X86 and LANES == 8:
        return call_llvm(builder, "llvm.x86.avx.cvt.ps2dq.256", INTS, [x])
    return builder.fptosi(llvm_of_lanes(builder, "rint", x), INTS)


@primitive(vec_t, vec_t, vec_t)
def packed(builder, a, b):
    """The numbers of ``a`` and then those of ``b``, rounded to even, as pairs; int16 holds all of them."""
    return _join(builder, [nearest(builder, x) for x in (a, b)])


@primitive(vec_t, vec_t, vec_t)
def paired(builder, a, b):
    """The same of any numbers: the nearest that int16 holds, of NaN the least."""
    low, high = all_floats(-32768.0), all_floats(32767.0)
    return _join(
        builder, [nearest(builder, vmin_ir(builder, high, vmax_ir(builder, x, low))) for x in (a, b)]
    )


@primitive(types.void, i64, f32)
def store_number(builder, address, x):
    """Writes the same of one number, in 2 bytes."""
    low, high = ir.Constant(F32, -32768.0), ir.Constant(F32, 32767.0)
    x = vmin_ir(builder, high, vmax_ir(builder, x, low))
    if X86:
        first = splat_ir(builder, x, ir.VectorType(F32, 4))
        whole = call_llvm(builder, "llvm.x86.sse.cvtss2si", I32, [first])
    else:
        whole = builder.fptosi(call_llvm(builder, "llvm.rint.f32", F32, [x]), I32)
    builder.store(builder.trunc(whole, I16), pointer(builder, address, I16), align=2)


@primitive(vec_t, vec_t, i64)
def before(builder, x, count):
    """The lanes before ``count``, which may be any number, zeros in the rest."""
    return builder.select(first_lanes(builder, count), x, all_floats(0.0))
