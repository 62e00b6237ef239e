"""Errors that appear only at run time, such as an index out of range.

A step raises a flag, and the engine raises the error after the run. The kernel then continues with a harmless
value, so that it stays within its memory. Items of one step may note different values; any of them may be the
one that stays.
"""

from numba.extending import register_jitable

from bslite.kernels.cpu.vector.memory import store_int

FLAG_BYTES = 16  # two int64: whether it was raised, and the number to show


@register_jitable
def raise_flag(flag, value):
    """Note ``value``, an int64, at the address ``flag``."""
    store_int(flag + 8, value)
    store_int(flag, 1)
