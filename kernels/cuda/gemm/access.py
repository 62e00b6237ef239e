"""How the products' kernels move cells of one or two floats, and count in 32 bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bslite.kernels.cuda.runtime.device import device_function, pair, put_pair


def cell_access(cell: int) -> tuple[Callable[..., None], Callable[..., None]]:
    """Device functions: one cell of memory into registers, ``(memory, index, into, at)``, and back."""
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
    """``0 <= i < n``."""
    return np.uint32(i) < np.uint32(n)


@device_function
def split(i, n):
    """``i // n, i % n`` of numbers that are not negative."""
    high = np.uint32(i) // np.uint32(n)
    return np.int32(high), np.int32(np.uint32(i) - high * np.uint32(n))
