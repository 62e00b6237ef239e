"""Bytes as cells: what the caller gives in bytes is widened by the threads that read it."""

from llvmlite import ir

from bslite.kernels.contracts.cpu.moves import Widen
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.lanes import INTS
from bslite.kernels.cpu.vector.memory import store
from bslite.kernels.cpu.vector.simd import LANES, VEC, i64, pointer, primitive, vec_t

W = reader(Widen)
EIGHT = ir.VectorType(ir.IntType(8), LANES)


@primitive(vec_t, i64)
def unsigned_bytes(builder, address):
    """As many neighbouring numbers of 0 to 255 as a register has lanes, as int32 cells."""
    given = builder.load(pointer(builder, address, EIGHT), align=1)
    return builder.bitcast(builder.zext(given, INTS), VEC)


@primitive(vec_t, i64)
def signed_bytes(builder, address):
    """The same of numbers of -128 to 127."""
    given = builder.load(pointer(builder, address, EIGHT), align=1)
    return builder.bitcast(builder.sext(given, INTS), VEC)


@step_kernel(Widen)
def widen(step, bases, item, scratch):
    """The numbers of one item, which has a register of them or more: the last register may begin earlier."""
    s = W(step, bases)
    first, last = s.count * item // s.parts, s.count * (item + 1) // s.parts
    signed, x, y = s.signed, s.x, s.y
    at, end = first, last - LANES
    while at <= end:
        store(y + 4 * at, signed_bytes(x + at) if signed else unsigned_bytes(x + at))
        at += LANES
    if at < last:
        store(y + 4 * end, signed_bytes(x + end) if signed else unsigned_bytes(x + end))
