"""Three plain loops: the definition of the matrix product.

Each output is one sum, finished before the next begins. Compiled by Numba, it is what C would be: a
multiplication and an addition that waits for the one before it, and weights read a whole line apart, a cache
line for each number.
"""

import numpy as np
from numba import njit

from benchmarks.ladder.problem import on_arrays
from bslite.spec import Array


@njit
def multiply(a: Array, b: Array, c: Array) -> None:
    """``c[m, n] = a[m, k] @ b[k, n]``."""
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            total = np.float32(0.0)
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = total


prepare = on_arrays(multiply)
