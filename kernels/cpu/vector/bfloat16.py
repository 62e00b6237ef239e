"""Registers of cells that hold two bfloat16 numbers each: rounding to them, and dot products of cells.

AVX512_BF16 has an instruction for both; elsewhere ordinary vector code does the same. The dot product is a
multiply-add of the odd terms, then one of the even terms. Instructions take and make zeros for what is below
the normal range.
"""

from llvmlite import ir
from numba import types

from bslite.kernels.contracts.cpu.tiles import MOST
from bslite.kernels.cpu.vector.lanes import all_ints, ints_of
from bslite.kernels.cpu.vector.simd import LANES, VEC, call_llvm, fma_ir, primitive, vec_t
from bslite.kernels.cpu.vector.target import has_bfloat16_dots

HALVES = ir.VectorType(ir.IntType(16), LANES)


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
    """``x`` rounded to bfloat16, of two the even one, in the upper half of each int32."""
    bits = ints_of(builder, x)
    last = builder.and_(builder.lshr(bits, all_ints(16)), all_ints(1))
    return builder.add(bits, builder.add(last, all_ints(0x7FFF)))


@primitive(vec_t, vec_t, vec_t)
def rounded(builder, first, second):
    """The numbers of ``first`` and then those of ``second`` as cells of two neighbours."""
    if has_bfloat16_dots():
        name = f"llvm.x86.avx512bf16.cvtne2ps2bf16.{32 * LANES}"
        return builder.bitcast(call_llvm(builder, name, CELLS, [second, first]), VEC)
    halves = [
        builder.trunc(builder.lshr(_nearest(builder, x), all_ints(16)), HALVES) for x in (first, second)
    ]
    order = ir.Constant(ir.VectorType(ir.IntType(32), 2 * LANES), list(range(2 * LANES)))
    return builder.bitcast(builder.shuffle_vector(*halves, order), VEC)


@primitive(vec_t, vec_t, vec_t)
def paired(builder, even, odd):
    """Cells of a number of ``even`` and the one in the same lane of ``odd``."""
    low = builder.lshr(_nearest(builder, even), all_ints(16))
    high = builder.and_(_nearest(builder, odd), all_ints(0xFFFF0000))
    return builder.bitcast(builder.or_(low, high), VEC)


@primitive(vec_t, vec_t, vec_t)
def larger(builder, seen, x):
    """The larger magnitude in each lane, as bits: above every number's if ``x`` is NaN."""
    size = builder.and_(ints_of(builder, x), all_ints(0x7FFFFFFF))
    kept = ints_of(builder, seen)
    return builder.bitcast(builder.select(builder.icmp_unsigned(">", size, kept), size, kept), VEC)


@primitive(types.boolean, vec_t)
def not_finite(builder, seen):
    """Whether a magnitude has no finite bfloat16: infinity, NaN, or one that rounds to infinity."""
    above = builder.icmp_unsigned(">=", ints_of(builder, seen), all_ints(MOST))
    lanes = ir.IntType(LANES)
    return builder.icmp_unsigned("!=", builder.bitcast(above, lanes), ir.Constant(lanes, 0))
