"""Errors that appear only at run time, such as an index out of range.

A step raises a flag, and the engine raises the error after the run. The kernel then continues with a harmless
value, so that it stays within its memory. Items of one step may note different values; any of them may be the
one that stays.
"""

from numba.extending import register_jitable

from bslite.kernels.cpu.vector.memory import store_int


@register_jitable
def raise_flag(flag, value):
    """Note ``value``, an int64, in the second cell at ``flag``; the first says that it was raised."""
    store_int(flag + 8, value)
    store_int(flag, 1)
