"""A tile of C in registers for the whole sum, of sixteen scalars: a step down, for one reason.

Four numbers of A and four of B make sixteen products: eight loads for sixteen multiply-adds, and C is
neither loaded nor stored until the end. That is the shape of every fast matrix product. But the compiler
sees scalars, and leaves them scalars or makes short vectors of them: what is missing is the next step.
"""

import numpy as np
from numba import njit

from benchmarks.ladder.problem import on_arrays
from bslite.spec import Array


@njit(fastmath={"contract"})
def multiply(a: Array, b: Array, c: Array) -> None:
    """``c[m, n] = a[m, k] @ b[k, n]``, ``m`` at least 4 and ``n`` a multiple of 4."""
    m, n = c.shape
    for start in range(0, m, 4):
        i = min(start, m - 4)
        for j in range(0, n, 4):
            c00 = c01 = c02 = c03 = c10 = c11 = c12 = c13 = np.float32(0.0)
            c20 = c21 = c22 = c23 = c30 = c31 = c32 = c33 = np.float32(0.0)
            for k in range(a.shape[1]):
                x0, x1, x2, x3 = a[i, k], a[i + 1, k], a[i + 2, k], a[i + 3, k]
                y0, y1, y2, y3 = b[k, j], b[k, j + 1], b[k, j + 2], b[k, j + 3]
                c00, c01, c02, c03 = c00 + x0 * y0, c01 + x0 * y1, c02 + x0 * y2, c03 + x0 * y3
                c10, c11, c12, c13 = c10 + x1 * y0, c11 + x1 * y1, c12 + x1 * y2, c13 + x1 * y3
                c20, c21, c22, c23 = c20 + x2 * y0, c21 + x2 * y1, c22 + x2 * y2, c23 + x2 * y3
                c30, c31, c32, c33 = c30 + x3 * y0, c31 + x3 * y1, c32 + x3 * y2, c33 + x3 * y3
            c[i, j], c[i, j + 1], c[i, j + 2], c[i, j + 3] = c00, c01, c02, c03
            c[i + 1, j], c[i + 1, j + 1], c[i + 1, j + 2], c[i + 1, j + 3] = c10, c11, c12, c13
            c[i + 2, j], c[i + 2, j + 1], c[i + 2, j + 2], c[i + 2, j + 3] = c20, c21, c22, c23
            c[i + 3, j], c[i + 3, j + 1], c[i + 3, j + 2], c[i + 3, j + 3] = c30, c31, c32, c33


prepare = on_arrays(multiply)
