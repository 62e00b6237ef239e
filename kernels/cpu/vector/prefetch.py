"""Asking for a cache line before it is read."""

from __future__ import annotations

from numba import types

from bslite.kernels.cpu.vector.atomic import atomic
from bslite.kernels.cpu.vector.simd import prefetch_ir

prefetch = atomic("prefetch", lambda b, address: prefetch_ir(b, address), types.void, types.int64)
