"""A tile of six rows by two vector registers, written out in Python on `Vec` values, for steps 5 and 6."""

from typing import Any

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.vector.memory import load, load_scalar, store
from bslite.kernels.cpu.vector.simd import BYTES, fma, splat

ROWS = 6  # with two registers each: 12 accumulators, 2 of B, 1 of A, which fits the 16 of AVX2
f = np.float32


@register_jitable
def tile(a: int, a_row: int, depth: int, b: int, b_row: int, c: int, c_row: int) -> None:
    """``c[6, 2 registers] = a[6, depth] @ b[depth, 2 registers]``; byte addresses and byte strides."""
    zero: Any = splat(f(0.0))
    c00 = c01 = c10 = c11 = c20 = c21 = c30 = c31 = c40 = c41 = c50 = c51 = zero
    for k in range(depth):
        y0, y1 = load(b + k * b_row), load(b + k * b_row + BYTES)
        at = a + 4 * k
        x = splat(load_scalar(at))
        c00, c01 = fma(x, y0, c00), fma(x, y1, c01)
        x = splat(load_scalar(at + a_row))
        c10, c11 = fma(x, y0, c10), fma(x, y1, c11)
        x = splat(load_scalar(at + 2 * a_row))
        c20, c21 = fma(x, y0, c20), fma(x, y1, c21)
        x = splat(load_scalar(at + 3 * a_row))
        c30, c31 = fma(x, y0, c30), fma(x, y1, c31)
        x = splat(load_scalar(at + 4 * a_row))
        c40, c41 = fma(x, y0, c40), fma(x, y1, c41)
        x = splat(load_scalar(at + 5 * a_row))
        c50, c51 = fma(x, y0, c50), fma(x, y1, c51)
    store(c, c00)
    store(c + BYTES, c01)
    store(c + c_row, c10)
    store(c + c_row + BYTES, c11)
    store(c + 2 * c_row, c20)
    store(c + 2 * c_row + BYTES, c21)
    store(c + 3 * c_row, c30)
    store(c + 3 * c_row + BYTES, c31)
    store(c + 4 * c_row, c40)
    store(c + 4 * c_row + BYTES, c41)
    store(c + 5 * c_row, c50)
    store(c + 5 * c_row + BYTES, c51)
