"""Numbers of 4 or 8 bits as registers of float32: a register of cells has several of each column."""

import functools

from llvmlite import ir
from numba import types

from bslite.kernels.contracts.cpu.blocks import CELL
from bslite.kernels.cpu.vector.lanes import all_floats, all_ints, ints_of
from bslite.kernels.cpu.vector.simd import LANES, VEC, call_llvm, i64, load_ir, primitive, store_ir, vec_t
from bslite.kernels.cpu.vector.target import X86

#: Whether an instruction takes the lowest 4 bits of each lane for a place in a table: AVX-512's.
LOOKS_UP = X86 and LANES == 16


def number_ir(builder, cells, n, bits, zero):
    """The nth numbers of the cells, less ``zero``: a register, or None for half the range."""
    middle = 2.0 ** (bits - 1)
    code = builder.lshr(ints_of(builder, cells), all_ints(n * bits)) if n else ints_of(builder, cells)
    if bits == 4 and LOOKS_UP:
        table = ir.Constant(VEC, [q - middle * (zero is None) for q in range(LANES)])
        made = call_llvm(builder, "llvm.x86.avx512.permvar.sf.512", VEC, [table, code])
        return made if zero is None else builder.fsub(made, zero)
    made = builder.sitofp(builder.and_(code, all_ints(2**bits - 1)), VEC)
    return builder.fsub(made, all_floats(middle) if zero is None else zero)


@functools.cache
def widening(bits, zeros):
    """A function that writes the weights of the cells at ``source`` to rows ``row`` bytes apart."""

    @primitive(types.void, i64, vec_t, vec_t, i64, i64)
    def widen(builder, source, scale, zero, to, row):
        cells = load_ir(builder, source)
        for n in range(CELL // bits):
            store_ir(
                builder, to, builder.fmul(number_ir(builder, cells, n, bits, zero if zeros else None), scale)
            )
            to = builder.add(to, row)

    return widen
