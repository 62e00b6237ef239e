"""Flags for errors that show only at run time, noted as on the CPU (kernels/cpu/runtime/flag.py)."""

import numpy as np

from bslite.kernels.cuda.runtime.device import device_function

FLAG_CELLS = 4  # two int64: whether the flag was raised, and the number to show


@device_function
def raise_flag(flag, value):
    """Note ``value``, an int64, in the cells ``flag``. Of several values any one may stay."""
    flag[np.uint64(2)] = np.int32(value)
    flag[np.uint64(3)] = np.int32(value >> 32)
    flag[np.uint64(0)] = np.int32(1)
