"""What can only be found wrong while running: a kernel notes it here, and the engine raises after the run.

The kernel then goes on with something harmless. Threads may note different values; which one stays does not
matter.
"""

from __future__ import annotations

from bslite.kernels.cuda.device import device_function

CELLS = 4  # of a flag: two int64, whether it was raised and the number to be shown, as int32


@device_function
def raise_flag(flag, value):
    """Note ``value``, an int64, at the int32 cells of ``flag``."""
    low = value & 0xFFFFFFFF
    if low >= 0x80000000:
        low -= 0x100000000
    flag[2] = low
    flag[3] = value >> 32
    flag[0] = 1
