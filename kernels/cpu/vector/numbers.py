"""Single numbers that are no cells: float64 and bytes at byte addresses, bits of a word."""

from llvmlite import ir
from numba import types

from bslite.kernels.cpu.vector.simd import i64, pointer, primitive

F64, I8, BIT = ir.DoubleType(), ir.IntType(8), ir.IntType(1)


@primitive(types.float64, i64)
def load_double(builder, address):
    """The float64 at a byte address."""
    return builder.load(pointer(builder, address, F64), align=8)


@primitive(types.void, i64, types.float64)
def store_double(builder, address, value):
    """Writes one float64."""
    builder.store(value, pointer(builder, address, F64), align=8)


@primitive(types.void, i64, i64)
def store_byte(builder, address, value):
    """Writes the low 8 bits of an int64."""
    builder.store(builder.trunc(value, I8), pointer(builder, address, I8), align=1)


@primitive(i64, i64)
def lowest_bit(builder, word):
    """The place of the lowest bit that is set; 64 if none is."""
    return builder.cttz(word, BIT(0))
