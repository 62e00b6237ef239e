"""Resizing along one axis: each output line is a weighted sum of a few input lines, listed in a table."""

from bslite.kernels.contracts.cpu.resize import Resample
from bslite.kernels.cpu.moves.move import copy_run
from bslite.kernels.cpu.runtime.compile import offsets, step_kernel
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.partial import load_some, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, fma, load_int, load_scalar, splat

F = offsets(Resample)
ENTRY = 16  # bytes of a tap: the input line, and its float32 weight in a cell


@step_kernel(Resample)
def resample(step, bases, item, scratch):
    """``y[o, i] = sum of weight * x[o, line]``, dense, over i's taps in order; lines of ``inner`` cells.

    A single tap has weight one and is copied, whatever its cells are.
    """
    size, out, inner = load_int(step + F.size), load_int(step + F.out), load_int(step + F.inner)
    taps, table = load_int(step + F.taps), operand(step, bases, F.table)
    first = item * load_int(step + F.item_lines)
    for line in range(first, min(load_int(step + F.lines), first + load_int(step + F.item_lines))):
        x = operand(step, bases, F.x) + line // out * size * inner * 4
        y = operand(step, bases, F.y) + line * inner * 4
        tap = table + line % out * taps * ENTRY
        if taps == 1:
            copy_run(x + load_int(tap) * inner * 4, y, inner, 4, 4, 1)
            continue
        place, left = 0, inner
        while left > 0:
            # a zero weight still multiplies: an infinite element makes NaN, as in torch
            total = splat(load_scalar(tap + 8)) * load_some(x + load_int(tap) * inner * 4 + place, left)
            for t in range(1, taps):
                entry = tap + t * ENTRY
                v = load_some(x + load_int(entry) * inner * 4 + place, left)
                total = fma(splat(load_scalar(entry + 8)), v, total)
            store_some(y + place, total, left)
            place += BYTES
            left -= LANES
