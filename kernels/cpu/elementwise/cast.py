"""Change of dtype, a cell at a time: integers are int32 in the engine, bools int32 0 or 1."""

from __future__ import annotations

import numpy as np

from bslite.kernels.cpu.runtime.compile import record, step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.simd import load_cell, load_int, load_scalar, store_cell, store_scalar

FLOAT_TO_INT, INT_TO_FLOAT, FLOAT_TO_BOOL, INT_TO_BOOL = 0, 1, 2, 3  # modes
F = record("cast", "x x_at y y_at flag flag_at n0 n1 n2 n3 n4 n5 x0 x1 x2 x3 x4 x5 y0 y1 y2 y3 y4 y5 mode")
EDGE = np.float32(2.0**31)


@step_kernel("cast", F)
def cast(step, bases, item, scratch):
    """``y[i0..i5] = x[i0..i5]``, byte strides, the item being one (i0, i1)."""
    n1 = load_int(step + F.n1)
    i0, i1 = item // n1, item % n1
    x = operand(step, bases, F.x) + i0 * load_int(step + F.x0) + i1 * load_int(step + F.x1)
    y = operand(step, bases, F.y) + i0 * load_int(step + F.y0) + i1 * load_int(step + F.y1)
    flag = operand(step, bases, F.flag)
    mode = load_int(step + F.mode)
    x5, y5 = load_int(step + F.x5), load_int(step + F.y5)
    for i2 in range(load_int(step + F.n2)):
        for i3 in range(load_int(step + F.n3)):
            for i4 in range(load_int(step + F.n4)):
                p = x + i2 * load_int(step + F.x2) + i3 * load_int(step + F.x3) + i4 * load_int(step + F.x4)
                q = y + i2 * load_int(step + F.y2) + i3 * load_int(step + F.y3) + i4 * load_int(step + F.y4)
                for _ in range(load_int(step + F.n5)):
                    if mode == FLOAT_TO_INT:
                        v = load_scalar(p)
                        if v >= -EDGE and v < EDGE:
                            store_cell(q, np.int64(v))
                        else:
                            raise_flag(flag, 0)
                            store_cell(q, 0)
                    elif mode == INT_TO_FLOAT:
                        store_scalar(q, np.float32(load_cell(p)))
                    elif mode == FLOAT_TO_BOOL:
                        store_cell(q, 0 if load_scalar(p) == np.float32(0.0) else 1)
                    else:
                        store_cell(q, 0 if load_cell(p) == 0 else 1)
                    p += x5
                    q += y5
