"""Registers of numbers that lie in memory in 16 bits: widened to float32 as they are read, which is exact."""

from typing import Any

from llvmlite import ir

from bslite.kernels.contracts.cpu.sweep import Narrow
from bslite.kernels.cpu.vector.lanes import all_ints
from bslite.kernels.cpu.vector.simd import I32, LANES, VEC, load_ir, pointer

BITS = ir.VectorType(ir.IntType(16), LANES)
HALVES = ir.VectorType(ir.HalfType(), LANES)
INTS = ir.VectorType(I32, LANES)


def load_weights(builder: Any, address: Any, narrow: Narrow) -> Any:
    """One register of weights from an address of any alignment."""
    if narrow is Narrow.NO:
        return load_ir(builder, address)
    if narrow is Narrow.FLOAT16:
        return builder.fpext(builder.load(pointer(builder, address, HALVES), align=2), VEC)
    bits = builder.load(pointer(builder, address, BITS), align=2)
    return builder.bitcast(builder.shl(builder.zext(bits, INTS), all_ints(16)), VEC)
