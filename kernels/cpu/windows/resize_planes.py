"""Resizing planes of contiguous pixels: row-major images, whatever the number of channels.

For each register of neighbouring output pixels, the rows are mixed in registers of neighbouring input pixels,
of which each output pixel then picks its lanes. The sums are those of `resize_linear`, in its order.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.resize import ResizePlanes
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import planes_of, reader
from bslite.kernels.cpu.vector.across import picked, picked_or
from bslite.kernels.cpu.vector.memory import load, load_int, load_scalar, load_some, store, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, fma, splat
from bslite.kernels.cpu.windows.resize import TAP

P = reader(ResizePlanes)
f = np.float32


@register_jitable
def _mixed(x, row, taps, at, width):
    """The sum of the weighted rows, a register from byte ``at`` on; a single row is taken as it is, whatever
    its cells are.
    """
    left = width - at // 4
    total = load_some(x + load_int(row) + at, left)
    if taps > 1:
        # a zero weight still multiplies: an infinite pixel makes NaN, as in torch
        total = splat(load_scalar(row + 8)) * total
        for tap in range(row + TAP, row + taps * TAP, TAP):
            v = load_some(x + load_int(tap) + at, left)
            total = fma(splat(load_scalar(tap + 8)), v, total)
    return total


@register_jitable
def any_line(x, row, row_taps, width, cols, col_taps, picks, pixels, y, mixed):
    """Writes an output line of any taps; several registers of mixed rows lie in memory meanwhile."""
    end, each, offsets = 4 * max(0, pixels - LANES), (picks + 1) * BYTES, col_taps * (picks + 1) * BYTES
    for begin in range(0, 4 * pixels, BYTES):
        at = min(end, begin)
        for pick in range(picks):
            value = _mixed(x, row, row_taps, load_int(cols + offsets + 8 * pick), width)
            store(mixed + pick * BYTES, value)
        total = splat(f(0.0))
        for tap in range(col_taps):
            value = picked(load(mixed), cols)
            for pick in range(BYTES, picks * BYTES, BYTES):
                value = picked_or(load(mixed + pick), cols + pick, value)
            if col_taps > 1:
                weight = load(cols + picks * BYTES)
                value = fma(weight, value, total) if tap else weight * value
            total = value
            cols += each
        store_some(y + at, total, pixels - at // 4)
        cols += (8 * picks + BYTES - 1) // BYTES * BYTES


def _line_of(taps):
    """`any_line` for so many taps along both axes, 1 or 2, where one register of rows has all pixels."""

    @register_jitable
    def line(x, row, width, cols, pixels, y):
        end, offset = 4 * max(0, pixels - LANES), 2 * taps * BYTES
        top, bottom = x + load_int(row), x + load_int(row + (taps - 1) * TAP)
        of_top, of_bottom = splat(load_scalar(row + 8)), splat(load_scalar(row + (taps - 1) * TAP + 8))
        for begin in range(0, 4 * pixels, BYTES):
            at, place = min(end, begin), load_int(cols + offset)
            if width >= LANES:
                value, below = load(top + place), load(bottom + place)
            else:
                value, below = load_some(top, width), load_some(bottom, width)
            if taps == 2:
                value = fma(of_bottom, below, of_top * value)
            total = picked(value, cols)
            if taps == 2:
                total = load(cols + BYTES) * total
                total = fma(load(cols + 3 * BYTES), picked(value, cols + 2 * BYTES), total)
            store_some(y + at, total, pixels - at // 4)
            cols += offset + BYTES

    return line


nearest_line, linear_line = _line_of(1), _line_of(2)


@step_kernel(ResizePlanes)
def resize_planes(step, bases, item, scratch):
    """Resizes a band of output lines of some planes: mixes rows, then picks and mixes columns."""
    s = P(step, bases)
    first, last, first_line, last_line = planes_of(s, item, s.lines)
    rows, cols, width, pixels, y_line = s.rows, s.cols, s.width, s.pixels, s.y_line
    row_taps, col_taps, picks = s.row_taps, s.col_taps, s.picks
    taps = row_taps if row_taps == col_taps and picks == 1 else 0
    for plane in range(first, last):
        image, channel = plane // s.channels, plane % s.channels
        x = s.x + image * s.x_image + channel * s.x_channel
        y = s.y + image * s.y_image + channel * s.y_channel + first_line * y_line
        for line in range(first_line, last_line):
            row = rows + line * row_taps * TAP
            if taps == 1:
                nearest_line(x, row, width, cols, pixels, y)
            elif taps == 2:
                linear_line(x, row, width, cols, pixels, y)
            else:
                any_line(x, row, row_taps, width, cols, col_taps, picks, pixels, y, scratch)
            y += y_line
