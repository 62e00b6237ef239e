"""Asking for a cache line before it is read."""

from __future__ import annotations

from numba import types

from bslite.kernels.cpu.vector.simd import i64, prefetch_ir, primitive


@primitive(types.void, i64)
def prefetch(builder, address):
    """Ask for the cache line at an address; any address will do, even one that is not mapped."""
    prefetch_ir(builder, address)
