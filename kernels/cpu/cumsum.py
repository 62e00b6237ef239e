"""Running sums along a row, in float64 or in 64-bit integers."""

from __future__ import annotations

import numpy as np

from bslite.kernels.cpu.compile import record
from bslite.kernels.cpu.flag import raise_flag
from bslite.kernels.cpu.operand import operand
from bslite.kernels.cpu.rows import ROWS, row_kernel
from bslite.kernels.cpu.simd import load_cell, load_int, load_scalar, store_cell, store_scalar

C = record("cumsum", ROWS + "flag flag_at exclusive reverse integers")
f = np.float32


def _cumsum(step, bases, item, x, y, length):
    exclusive = load_int(step + C.exclusive)
    by = 4
    if load_int(step + C.reverse):
        x, y, by = x + 4 * (length - 1), y + 4 * (length - 1), -4
    if load_int(step + C.integers):
        count = 0
        for _ in range(length):
            value = load_cell(x)
            made = count if exclusive else count + value
            count += value
            if made < -2147483648 or made > 2147483647:
                raise_flag(operand(step, bases, C.flag), made)
            store_cell(y, made)
            x += by
            y += by
        return
    total = 0.0
    for _ in range(length):
        before = total
        total += load_scalar(x)
        store_scalar(y, f(before if exclusive else total))
        x += by
        y += by


cumsum = row_kernel("cumsum", C, _cumsum)
