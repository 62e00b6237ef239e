"""Sums and maxima over the threads that share a row, in a fixed order: by halves within a warp (a butterfly,
so that all of its threads have the result), then warp after warp.
"""

import functools

from bslite.kernels.cuda.math.functions import larger
from bslite.kernels.cuda.runtime.device import device_function
from bslite.kernels.cuda.runtime.exchange import WARP, exchange, synchronise


@device_function
def added(x, y):
    """Return the sum of two values."""
    return x + y


@functools.cache
def across(combine, width: int):
    """Return ``(value, me, room, parts) -> result``: ``combine`` over ``width`` threads, a power of two.

    All threads of the block take part; ``me`` is the thread's number, ``room`` is for `exchange`, ``parts``
    are float64 cells of shared memory, one for each warp of the block.
    """
    warp = min(width, WARP)
    levels, warps = warp.bit_length() - 1, width // warp

    @device_function
    def result(value, me, room, parts):
        for k in range(levels):
            value = combine(value, exchange(value, warp >> (k + 1), room))
        if warps > 1:
            if me % WARP == 0:
                parts[me // WARP] = value
            synchronise()
            first = me // width * warps
            value = parts[first]
            for k in range(1, warps):
                value = combine(value, parts[first + k])
            synchronise()  # before the cells are written again
        return value

    return result


def total(width: int):
    """Return `across` for sums."""
    return across(added, width)


def most(width: int):
    """Return `across` for maxima; NaN if one is."""
    return across(larger, width)
