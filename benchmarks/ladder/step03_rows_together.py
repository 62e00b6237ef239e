"""Four rows at a time: what is read of B is used four times.

B is far larger than a core's first cache and was read once for every row of A. With four rows of C under way,
a quarter of that is enough.
"""

import numpy as np
from numba import njit

from benchmarks.ladder.problem import on_arrays
from bslite.spec import Array


@njit(fastmath={"contract"})
def multiply(a: Array, b: Array, c: Array) -> None:
    """``c[m, n] = a[m, k] @ b[k, n]``, ``m`` at least 4."""
    m = c.shape[0]
    for start in range(0, m, 4):
        i = min(start, m - 4)  # the last four rows may overlap those before: no code for a remainder
        c[i : i + 4] = np.float32(0.0)
        for k in range(a.shape[1]):
            x0, x1, x2, x3 = a[i, k], a[i + 1, k], a[i + 2, k], a[i + 3, k]
            for j in range(c.shape[1]):
                y = b[k, j]
                c[i, j] += x0 * y
                c[i + 1, j] += x1 * y
                c[i + 2, j] += x2 * y
                c[i + 3, j] += x3 * y


prepare = on_arrays(multiply)
