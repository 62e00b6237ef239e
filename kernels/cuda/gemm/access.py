"""Access to cells of one or two floats, and counting in 32 bits, for the kernels of products."""

from collections.abc import Callable

import numpy as np

from bslite.kernels.cuda.runtime.device import device_function, pair, put_pair


def cell_access(cell: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return device functions ``(memory, index, into, at)`` that load and store a cell."""
    if cell == 2:

        @device_function
        def take(memory, index, into, at):
            into[at], into[at + 1] = pair(memory, np.uint32(index))

        @device_function
        def put(memory, index, values, at):
            put_pair(memory, np.uint32(index), values[at], values[at + 1])

    else:

        @device_function
        def take(memory, index, into, at):
            into[at] = memory[np.uint32(index)]

        @device_function
        def put(memory, index, values, at):
            memory[np.uint32(index)] = values[at]

    return take, put


@device_function
def within(i, n):
    """Return whether ``0 <= i < n``."""
    return np.uint32(i) < np.uint32(n)


@device_function
def split(i, n):
    """Return ``i // n, i % n`` of non-negative numbers."""
    high = np.uint32(i) // np.uint32(n)
    return np.int32(high), np.int32(np.uint32(i) - high * np.uint32(n))
