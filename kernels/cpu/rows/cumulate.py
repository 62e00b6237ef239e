"""Running sums and products along a row, in float64 or in 64-bit integers."""

import math

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.rows import CumProd, CumSum, LogCumSumExp
from bslite.kernels.contracts.rows import Running
from bslite.kernels.cpu.rows.rows import row_kernel
from bslite.kernels.cpu.runtime.compile import offsets
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.simd import load_cell, load_int, load_scalar, store_cell, store_scalar

C = offsets(CumSum)
f = np.float32
FAR = 2147483649  # beyond 32 bits, and a product of it with 32 bits fits 64


@register_jitable
def _added(total, value):
    return total + value


@register_jitable
def _multiplied(total, value):
    return total * value


def _running(combine, start):
    """The body of a row kernel."""

    def body(step, bases, item, x, y, length):
        exclusive, by = load_int(step + C.exclusive), 4
        if load_int(step + C.reverse):
            x, y, by = x + 4 * (length - 1), y + 4 * (length - 1), -4
        if load_int(step + C.integers):
            count = start
            for _ in range(length):
                after = combine(count, load_cell(x))
                made = count if exclusive else after
                # clamped where the next step fits 64 bits: out of range for good, unless times zero
                count = min(max(after, -FAR), FAR)
                if made < -2147483648 or made > 2147483647:
                    raise_flag(operand(step, bases, C.flag), made)
                store_cell(y, made)
                x += by
                y += by
            return
        total = np.float64(start)
        for _ in range(length):
            before = total
            total = combine(total, np.float64(load_scalar(x)))
            store_scalar(y, f(before if exclusive else total))
            x += by
            y += by

    return body


def _logcumsumexp(step, bases, item, x, y, length):
    total = np.float64(load_scalar(x))
    store_scalar(y, f(total))
    for i in range(1, length):
        value = np.float64(load_scalar(x + 4 * i))
        if total == value:  # the same infinity, or a doubled sum
            total += math.log(2.0)
        elif total != total or value != value:
            total += value
        else:
            total = max(total, value) + math.log1p(math.exp(-abs(total - value)))
        store_scalar(y + 4 * i, f(total))


cumsum = row_kernel(CumSum, _running(_added, int(Running.SUM)))
cumprod = row_kernel(CumProd, _running(_multiplied, int(Running.PRODUCT)))
logcumsumexp = row_kernel(LogCumSumExp, _logcumsumexp)
