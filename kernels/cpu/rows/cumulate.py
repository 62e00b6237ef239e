"""Running sums and products, in float64 or in 64-bit integers: along a row, or of lanes side by side."""

import math

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.rows import CumProd, CumProdLanes, CumSum, CumSumLanes, LogCumSumExp
from bslite.kernels.contracts.rows import Running
from bslite.kernels.cpu.rows.rows import lane_kernel, row_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.vector.memory import (
    load_cell,
    load_scalar,
    load_some,
    store_cell,
    store_scalar,
    store_some,
)
from bslite.kernels.cpu.vector.wide import narrow, splat_wide, widen

f = np.float32
FAR = 2147483649  # beyond 32 bits, and a product of it with 32 bits fits 64


def _running(combine, start):
    """The body of a row kernel."""
    combine = register_jitable(combine)

    def body(s, item, x, y, length):
        exclusive, by = s.exclusive, 4
        if s.reverse:
            x, y, by = x + 4 * (length - 1), y + 4 * (length - 1), -4
        if s.integers:
            count = start
            for _ in range(length):
                after = combine(count, load_cell(x))
                made = count if exclusive else after
                # clamped where the next step fits 64 bits: out of range for good, unless times zero
                count = min(max(after, -FAR), FAR)
                if made < -2147483648 or made > 2147483647:
                    raise_flag(s.flag, made)
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


def _logcumsumexp(s, item, x, y, length):
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


cumsum = row_kernel(CumSum, _running(lambda total, value: total + value, int(Running.SUM)))
cumprod = row_kernel(CumProd, _running(lambda total, value: total * value, int(Running.PRODUCT)))
logcumsumexp = row_kernel(LogCumSumExp, _logcumsumexp)


def _lanes(combine, start):
    """The body of a lane kernel."""
    combine = register_jitable(combine)

    def body(s, x, y, length, left):
        x_by, y_by, exclusive = s.x_by, s.y_by, s.exclusive
        if s.reverse:
            x, y, x_by, y_by = x + (length - 1) * x_by, y + (length - 1) * y_by, -x_by, -y_by
        total = splat_wide(start)
        for _ in range(length):
            before = total
            total = combine(total, widen(load_some(x, left)))
            store_some(y, narrow(before if exclusive else total), left)
            x, y = x + x_by, y + y_by

    return body


cumsum_lanes = lane_kernel(CumSumLanes, _lanes(lambda total, value: total + value, float(Running.SUM)))
cumprod_lanes = lane_kernel(CumProdLanes, _lanes(lambda total, value: total * value, float(Running.PRODUCT)))
