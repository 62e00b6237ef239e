"""Loads and stores of the last register of a run, of which only some lanes exist.

Nothing outside the run is read or written, so a run may end where the memory does. Whole registers take a
predictable branch and no mask, because machines narrower than AVX-512 have no cheap masks.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.vector.simd import LANES, load, load_first, store, store_first

f = np.float32


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
