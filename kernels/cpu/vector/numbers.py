"""Loads and stores of single numbers that are no cells, at byte addresses: float64 and bytes."""

from llvmlite import ir
from numba import types

from bslite.kernels.cpu.vector.simd import I64, i64, pointer, primitive

F64, I8 = ir.DoubleType(), ir.IntType(8)


@primitive(types.float64, i64)
def load_double(builder, address):
    """The float64 at a byte address."""
    return builder.load(pointer(builder, address, F64), align=8)


@primitive(types.void, i64, types.float64)
def store_double(builder, address, value):
    """Writes one float64."""
    builder.store(value, pointer(builder, address, F64), align=8)


@primitive(i64, i64)
def load_byte(builder, address):
    """The byte at an address."""
    return builder.zext(builder.load(pointer(builder, address, I8), align=1), I64)


@primitive(types.void, i64, i64)
def store_byte(builder, address, value):
    """Writes the low 8 bits of an int64."""
    builder.store(builder.trunc(value, I8), pointer(builder, address, I8), align=1)
