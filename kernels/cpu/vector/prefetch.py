"""Prefetching of a cache line."""

from numba import types

from bslite.kernels.cpu.vector.simd import i64, prefetch_ir, primitive


@primitive(types.void, i64)
def prefetch(builder, address):
    """Prefetches the cache line at an address, which need not be mapped."""
    prefetch_ir(builder, address)
