"""The loops in another order, so that the innermost one runs along memory.

``i, k, j``: a line of C gets a multiple of a line of B. No iteration of the innermost loop waits for another,
and all of them lie side by side, so the compiler makes vector instructions of it. But each multiply-add now
loads and stores C.
"""

import numpy as np
from numba import njit

from benchmarks.ladder.problem import on_arrays
from bslite.spec import Array


@njit(fastmath={"contract"})  # a multiplication and an addition may become one instruction
def multiply(a: Array, b: Array, c: Array) -> None:
    """``c[m, n] = a[m, k] @ b[k, n]``."""
    c[:] = np.float32(0.0)
    for i in range(c.shape[0]):
        for k in range(a.shape[1]):
            x = a[i, k]
            for j in range(c.shape[1]):
                c[i, j] += x * b[k, j]


prepare = on_arrays(multiply)
