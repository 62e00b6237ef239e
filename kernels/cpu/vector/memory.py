"""Loads and stores of registers and single cells at byte addresses.

`load_some` and `store_some` take the last register of a run, of which only some lanes exist. Nothing outside
the run is read or written, so a run may end where the memory does. Whole registers take a predictable branch
and no mask, because machines narrower than AVX-512 have no cheap masks.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import register_jitable

from bslite.kernels.cpu.vector.simd import (
    F32,
    I32,
    I64,
    LANES,
    f32,
    first_lanes,
    i64,
    load_ir,
    masked_load_ir,
    masked_store_ir,
    pointer,
    prefetch_ir,
    primitive,
    splat_ir,
    store_ir,
    vec_t,
)  # fmt: skip

f = np.float32

load = primitive(vec_t, i64)(load_ir)
store = primitive(types.void, i64, vec_t)(store_ir)
prefetch = primitive(types.void, i64)(prefetch_ir)


@primitive(types.void, i64, vec_t, i64)
def store_first(builder, address, value, count):
    """Writes the first ``count`` lanes (clipped to the register)."""
    masked_store_ir(builder, address, value, first_lanes(builder, count))


@primitive(vec_t, i64, i64, f32)
def load_first(builder, address, count, other):
    """Reads the first ``count`` lanes, ``other`` in the rest."""
    return masked_load_ir(builder, address, first_lanes(builder, count), splat_ir(builder, other))


@primitive(f32, i64)
def load_scalar(builder, address):
    """The float32 at a byte address."""
    return builder.load(pointer(builder, address), align=4)


@primitive(types.void, i64, f32)
def store_scalar(builder, address, value):
    """Writes one float32."""
    builder.store(value, pointer(builder, address), align=4)


@primitive(i64, i64)
def load_pair(builder, address):
    """Two cells, which may lie anywhere, as one integer."""
    return builder.load(pointer(builder, address, I64), align=4)


@primitive(types.void, i64, i64)
def store_pair(builder, address, value):
    """Writes the two cells of `load_pair`."""
    builder.store(value, pointer(builder, address, I64), align=4)


@primitive(i64, i64)
def load_int(builder, address):
    """The int64 at a byte address."""
    return builder.load(pointer(builder, address, I64), align=8)


@primitive(types.void, i64, i64)
def store_int(builder, address, value):
    """Writes one int64."""
    builder.store(value, pointer(builder, address, I64), align=8)


@primitive(i64, i64)
def load_cell(builder, address):
    """The int32 at a byte address, as an int64: the engine's form of integers and (0 or 1) bools."""
    return builder.sext(builder.load(pointer(builder, address, I32), align=4), I64)


@primitive(types.void, i64, i64)
def store_cell(builder, address, value):
    """Writes the low 32 bits of an int64."""
    builder.store(builder.trunc(value, I32), pointer(builder, address, I32), align=4)


def every(stride):
    """Intrinsic: a register of every so many floats from an address on. It reads that many registers."""

    @primitive(vec_t, i64)
    def taken(builder, address):
        wide = ir.VectorType(F32, stride * LANES)
        found = builder.load(pointer(builder, address, wide), align=4)
        lanes = ir.Constant(ir.VectorType(I32, LANES), [stride * i for i in range(LANES)])
        return builder.shuffle_vector(found, ir.Constant(wide, ir.Undefined), lanes)

    return taken


@register_jitable
def load_some(address, count):
    """The register at ``address``, zeros in the lanes from ``count`` (which may be any number) on."""
    if count >= LANES:
        return load(address)
    return load_first(address, count, f(0.0))


@register_jitable
def store_some(address, value, count):
    """Writes the lanes before ``count``, which may be any number."""
    if count >= LANES:
        store(address, value)
    else:
        store_first(address, value, count)
