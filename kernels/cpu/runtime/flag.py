"""What can only be found wrong while running: a step notes it here, and the engine raises after the run.

The kernel then goes on with something harmless, so that nothing is read or written where it should not be.
Steps of several items may note different values; which one stays does not matter.
"""

from __future__ import annotations

from numba.extending import register_jitable

from bslite.kernels.cpu.vector.simd import store_int

FLAG_BYTES = 16  # two int64: was it raised, and the number to be shown


@register_jitable
def raise_flag(flag, value):
    """Note ``value``, an int64, at the address ``flag``."""
    store_int(flag + 8, value)
    store_int(flag, 1)
