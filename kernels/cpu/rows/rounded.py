"""Rows of numbers become cells of two bfloat16."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.rows import Rounded
from bslite.kernels.cpu.rows.rows import after
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.flag import raise_flag
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.bfloat16 import larger, not_finite
from bslite.kernels.cpu.vector.bfloat16 import rounded as cells_of
from bslite.kernels.cpu.vector.memory import load, load_some, store, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, splat

F = reader(Rounded)
f = np.float32


@register_jitable
def round_row(x, length, y, seen):
    """Rounds ``length`` numbers to cells, a zero beside the last one of an odd number. Returns ``seen`` with
    the larger magnitudes.
    """
    whole = length // (2 * LANES) * 2 * LANES
    for c in range(0, whole, 2 * LANES):
        made = cells_of(load(x + 4 * c), load(x + 4 * c + BYTES))
        seen = larger(seen, made)
        store(y + 2 * c, made)
    if whole < length:
        left = length - whole
        a, b = load_some(x + 4 * whole, left), load_some(x + 4 * whole + BYTES, left - LANES)
        made = cells_of(a, b)
        seen = larger(seen, made)
        store_some(y + 2 * whole, made, (left + 1) // 2)
    return seen


@register_jitable
def round_pixels(x, pixels, x_col, channels, y, y_col, seen):
    """Rounds so many rows of ``channels`` numbers, as `round_row` does each."""
    for i in range(pixels):
        seen = round_row(x + i * x_col, channels, y + i * y_col, seen)
    return seen


@step_kernel(Rounded)
def rounded(step, bases, item, scratch):
    """Rounds the rows of an item, and raises the flag if a number has no finite bfloat16."""
    s = F(step, bases)
    n1, n2, length = s.n1, s.n2, s.length
    x0, x1, x2, y0, y1, y2 = s.x0, s.x1, s.x2, s.y0, s.y1, s.y2
    source, target = s.x, s.y
    first = item * s.item_rows
    i0, i1, i2 = first // (n1 * n2), first // n2 % n1, first % n2
    seen = splat(f(0.0))
    for _ in range(first, min(s.rows, first + s.item_rows)):
        x, y = source + i0 * x0 + i1 * x1 + i2 * x2, target + i0 * y0 + i1 * y1 + i2 * y2
        seen = round_row(x, length, y, seen)
        i0, i1, i2 = after(i0, i1, i2, n1, n2)
    if not_finite(seen):
        raise_flag(s.flag, 0)
