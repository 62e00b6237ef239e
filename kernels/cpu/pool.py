"""Pooling over windows of NHWC images: the largest element, or the sum over a divisor.

Which rows and columns a window covers is a pair of tables, made once per plan and already cut to the image,
so one kernel does padded, dilated, overlapping and adaptive windows alike, and windows inside the image pay
nothing for the edges. An entry is three int64 cells: byte offset of the first row (column) from the image,
how many there are, and the share of the divisor, which is the product of the row's and the column's.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.compile import record, step_kernel
from bslite.kernels.cpu.operand import operand
from bslite.kernels.cpu.partial import load_some, store_some
from bslite.kernels.cpu.simd import (
    BYTES,
    LANES,
    load,
    load_int,
    splat,
    store,
    vmax_nan,
)

F = record(
    "pool",
    "x x_at y y_at rows rows_at cols cols_at "
    # byte strides; x_row and x_pixel are between the rows and columns of one window
    "x_image x_row x_pixel y_image y_line y_pixel "
    # items: images x bands of output lines x blocks of registers of channels
    "lines pixels channels band_lines bands blocks block_registers",
)
ENTRY = 24  # bytes of a table entry
f = np.float32


@register_jitable
def _max_four(x, rows, row, cols, col, y, divisor):
    a = splat(f(-np.inf))
    b, c, d = a, a, a
    for _ in range(rows):
        place = x
        for _ in range(cols):
            a = vmax_nan(a, load(place))
            b = vmax_nan(b, load(place + BYTES))
            c = vmax_nan(c, load(place + 2 * BYTES))
            d = vmax_nan(d, load(place + 3 * BYTES))
            place += col
        x += row
    store(y, a)
    store(y + BYTES, b)
    store(y + 2 * BYTES, c)
    store(y + 3 * BYTES, d)


@register_jitable
def _max_one(x, rows, row, cols, col, y, divisor, lanes):
    a = splat(f(-np.inf))
    for _ in range(rows):
        place = x
        for _ in range(cols):
            a = vmax_nan(a, load_some(place, lanes))
            place += col
        x += row
    store_some(y, a, lanes)


@register_jitable
def _mean_four(x, rows, row, cols, col, y, divisor):
    # each row on its own, then the rows: rounding errors grow with rows + columns, not with their product
    zero = splat(f(0.0))
    a, b, c, d = zero, zero, zero, zero
    for _ in range(rows):
        place = x
        ra, rb, rc, rd = zero, zero, zero, zero
        for _ in range(cols):
            ra = ra + load(place)
            rb = rb + load(place + BYTES)
            rc = rc + load(place + 2 * BYTES)
            rd = rd + load(place + 3 * BYTES)
            place += col
        a, b, c, d = a + ra, b + rb, c + rc, d + rd
        x += row
    store(y, a / divisor)
    store(y + BYTES, b / divisor)
    store(y + 2 * BYTES, c / divisor)
    store(y + 3 * BYTES, d / divisor)


@register_jitable
def _mean_one(x, rows, row, cols, col, y, divisor, lanes):
    a = splat(f(0.0))
    for _ in range(rows):
        place = x
        r = splat(f(0.0))
        for _ in range(cols):
            r = r + load_some(place, lanes)
            place += col
        a = a + r
        x += row
    store_some(y, a / divisor, lanes)


def _pool(name, four, one):
    def pool(step, bases, item, scratch):
        bands, blocks = load_int(step + F.bands), load_int(step + F.blocks)
        block, rest = item % blocks, item // blocks
        image, band = rest // bands, rest % bands
        first_line = band * load_int(step + F.band_lines)
        last_line = min(load_int(step + F.lines), first_line + load_int(step + F.band_lines))
        registers = load_int(step + F.block_registers)
        start = block * registers * BYTES
        channels = min(load_int(step + F.channels) - block * registers * LANES, registers * LANES)
        x = operand(step, bases, F.x) + image * load_int(step + F.x_image) + start
        y = operand(step, bases, F.y) + image * load_int(step + F.y_image) + start
        rows, cols = operand(step, bases, F.rows), operand(step, bases, F.cols)
        x_row, x_pixel = load_int(step + F.x_row), load_int(step + F.x_pixel)
        y_line, y_pixel = load_int(step + F.y_line), load_int(step + F.y_pixel)
        pixels = load_int(step + F.pixels)
        for line in range(first_line, last_line):
            top = x + load_int(rows + line * ENTRY)
            tall = load_int(rows + line * ENTRY + 8)
            share = load_int(rows + line * ENTRY + 16)
            for pixel in range(pixels):
                a = top + load_int(cols + pixel * ENTRY)
                wide = load_int(cols + pixel * ENTRY + 8)
                divisor = splat(f(share * load_int(cols + pixel * ENTRY + 16)))
                c = y + line * y_line + pixel * y_pixel
                left = channels
                while left >= 4 * LANES:
                    four(a, tall, x_row, wide, x_pixel, c, divisor)
                    a += 4 * BYTES
                    c += 4 * BYTES
                    left -= 4 * LANES
                while left > 0:
                    one(a, tall, x_row, wide, x_pixel, c, divisor, left)
                    a += BYTES
                    c += BYTES
                    left -= LANES

    return step_kernel(name, F)(pool)


max_pool = _pool("max_pool", _max_four, _max_one)
avg_pool = _pool("avg_pool", _mean_four, _mean_one)
