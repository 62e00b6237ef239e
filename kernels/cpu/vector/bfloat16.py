"""Registers of cells that hold two bfloat16 numbers each: rounding to them, and dot products of cells.

AVX512_BF16 has an instruction for both; elsewhere ordinary vector code does the same. The dot product is a
multiply-add of the odd terms, then one of the even terms. Instructions take and make zeros for what is below
the normal range.
"""

from llvmlite import ir
from numba import types

from bslite.kernels.cpu.vector.lanes import all_ints, ints_of
from bslite.kernels.cpu.vector.simd import LANES, VEC, call_llvm, fma_ir, primitive, vec_t
from bslite.kernels.cpu.vector.target import has_bfloat16_dots

HALVES = ir.VectorType(ir.IntType(16), LANES)
ALL = ir.VectorType(ir.IntType(16), 2 * LANES)
INFINITE = 0x7F80  # the bits of bfloat16's infinity


class _BFloat(ir.Type):
    """LLVM's type of a bfloat16, which llvmlite does not have."""

    def _to_string(self):
        return "bfloat"

    def __eq__(self, other):
        return isinstance(other, _BFloat)

    def __hash__(self):
        return hash(_BFloat)


CELLS = ir.VectorType(_BFloat(), 2 * LANES)


def dot_ir(builder, a, b, total):
    """``total`` plus the dot product of the pairs in each cell of ``a`` and ``b``."""
    if has_bfloat16_dots():
        a, b = builder.bitcast(a, CELLS), builder.bitcast(b, CELLS)
        return call_llvm(builder, f"llvm.x86.avx512bf16.dpbf16ps.{32 * LANES}", VEC, [total, a, b])
    terms = zip(terms_ir(builder, ints_of(builder, a)), terms_ir(builder, ints_of(builder, b)), strict=True)
    for x, y in reversed(list(terms)):
        total = fma_ir(builder, x, y, total)
    return total


def terms_ir(builder, cells):
    """The even and the odd bfloat16 of each cell as float32."""
    even = builder.shl(cells, all_ints(16))
    odd = builder.and_(cells, all_ints(0xFFFF0000))
    return [builder.bitcast(x, VEC) for x in (even, odd)]


def _nearest(builder, x):
    """``x`` rounded to bfloat16, of two the even one, in the upper half of each int32; NaN stays."""
    bits = ints_of(builder, x)
    last = builder.and_(builder.lshr(bits, all_ints(16)), all_ints(1))
    near = builder.add(bits, builder.add(last, all_ints(0x7FFF)))
    nan = builder.fcmp_unordered("uno", x, x)
    return builder.select(nan, builder.or_(bits, all_ints(0x00400000)), near)


def rounded_ir(builder, first, second):
    """The numbers of ``first`` and then those of ``second`` as cells of two neighbours."""
    if has_bfloat16_dots():
        name = f"llvm.x86.avx512bf16.cvtne2ps2bf16.{32 * LANES}"
        return builder.bitcast(call_llvm(builder, name, CELLS, [second, first]), VEC)
    halves = [
        builder.trunc(builder.lshr(_nearest(builder, x), all_ints(16)), HALVES) for x in (first, second)
    ]
    order = ir.Constant(ir.VectorType(ir.IntType(32), 2 * LANES), list(range(2 * LANES)))
    return builder.bitcast(builder.shuffle_vector(*halves, order), VEC)


def paired_ir(builder, even, odd):
    """Cells of a number of ``even`` and the one in the same lane of ``odd``."""
    low = builder.lshr(_nearest(builder, even), all_ints(16))
    high = builder.and_(_nearest(builder, odd), all_ints(0xFFFF0000))
    return builder.bitcast(builder.or_(low, high), VEC)


def _halves(first):
    """A function that gives the numbers of a register of cells from number ``first`` on, as float32."""
    order = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(range(first, first + LANES)))

    @primitive(vec_t, vec_t)
    def half(builder, cells):
        both = builder.bitcast(cells, ALL)
        wide = builder.zext(builder.shuffle_vector(both, both, order), ir.VectorType(ir.IntType(32), LANES))
        return builder.bitcast(builder.shl(wide, all_ints(16)), VEC)

    return half


first_half, second_half = _halves(0), _halves(LANES)
rounded, paired = (primitive(vec_t, vec_t, vec_t)(made) for made in (rounded_ir, paired_ir))


def larger_ir(builder, seen, cells):
    """The larger magnitude in each half of a cell, as bits."""
    sizes = builder.bitcast(builder.and_(ints_of(builder, cells), all_ints(0x7FFF7FFF)), ALL)
    kept = builder.bitcast(seen, ALL)
    return builder.bitcast(builder.select(builder.icmp_unsigned(">", sizes, kept), sizes, kept), VEC)


def not_finite_ir(builder, seen):
    """Whether a magnitude is no finite bfloat16: NaN, or infinity, to which 3.396e38 and more round."""
    above = builder.icmp_unsigned(">=", builder.bitcast(seen, ALL), ir.Constant(ALL, [INFINITE] * 2 * LANES))
    lanes = ir.IntType(2 * LANES)
    return builder.icmp_unsigned("!=", builder.bitcast(above, lanes), ir.Constant(lanes, 0))


larger = primitive(vec_t, vec_t, vec_t)(larger_ir)
not_finite = primitive(types.boolean, vec_t)(not_finite_ir)
