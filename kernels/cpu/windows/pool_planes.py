"""Pooling over planes of contiguous pixels: row-major images, whatever the number of channels.

The rows of a line's windows are reduced into a line in scratch memory, between neutral elements where windows
reach beyond the image. Windows are then reduced along that line, a register of neighbouring windows at a
time. Several lines are reduced before: loads that span two stores need not wait for them, and calls are few.
The order is that of `pool`: each column from the top down, then the columns from left to right.
"""

import operator

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.windows import AvgPlanes, MaxPlanes, Planes
from bslite.kernels.cpu.math.activation import activate
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import planes_of, reader
from bslite.kernels.cpu.vector.memory import (
    every,
    load,
    load_int,
    load_scalar,
    load_some,
    store,
    store_scalar,
    store_some,
)
from bslite.kernels.cpu.vector.simd import BYTES, LANES, divide, fma, splat, vmax, vmax_nan, vmin
from bslite.kernels.cpu.windows.pool import ENTRY

AT_ONCE = Planes.AT_ONCE
f = np.float32


@register_jitable
def _larger(a, b):
    """The larger of two numbers, as `vmax_nan`."""
    return a if a > b or a != a else b


def _planes(contract: type[Planes], combine, combine_one, neutral, summed):
    F = reader(contract)

    @register_jitable
    def down(x, entry, lines, row, width, line, apart):
        """Reduces the rows of each line's windows into a line, neutral elements behind it."""
        last = 4 * (width - LANES)
        for _ in range(lines):
            top, tall = x + load_int(entry), load_int(entry + 8)
            if tall == 0 or width < LANES:
                for at in range(0, width, LANES):
                    value, place = splat(neutral), top + 4 * at
                    for _ in range(tall):
                        value = combine(value, load_some(place, width - at))
                        place += row
                    store(line + 4 * at, value)
            else:
                for at in range(0, 4 * width, 2 * BYTES):
                    # Registers that would reach beyond the row repeat its last ones.
                    first, second = min(last, at), min(last, at + BYTES)
                    place = top
                    a, b = load(place + first), load(place + second)
                    for _ in range(1, tall):
                        place += row
                        a, b = combine(a, load(place + first)), combine(b, load(place + second))
                    store(line + first, a)
                    store(line + second, b)
            store(line + 4 * width, splat(neutral))
            entry += ENTRY
            line += apart

    def across(taken, stride):
        @register_jitable
        def sweep(line, lines, between, wide, apart, pixels, shares, y, y_line, affine, scale, shift, lo, hi):
            """Reduces the windows of lines, a register of them at a time."""
            inverses = shares + (pixels + LANES - 1) // LANES * BYTES
            last = 4 * max(0, pixels - LANES)
            for _ in range(lines):
                for begin in range(0, 4 * pixels, BYTES):
                    at = min(last, begin)
                    place = line + stride * at
                    value = taken(place)
                    for _ in range(1, wide):
                        place += apart
                        value = combine(value, taken(place))
                    if summed:
                        value = divide(value, load(shares + at), load(inverses + at))
                    if affine:
                        value = fma(value, scale, shift)
                    store_some(y + at, vmin(hi, vmax(lo, value)), pixels - at // 4)
                line += between
                y += y_line

        return sweep

    along_1, along_2 = across(load, 1), across(every(2), 2)
    along_3, along_4 = across(every(3), 3), across(every(4), 4)

    @register_jitable
    def along(stride, *operands):
        """The sweep for the stride, one of `Planes.STRIDES`."""
        if stride == 1:
            along_1(*operands)
        elif stride == 2:
            along_2(*operands)
        elif stride == 3:
            along_3(*operands)
        else:
            along_4(*operands)

    @register_jitable
    def one_by_one(line, lines, between, cols, apart, pixels, reduced):
        """Reduces windows of any width and place, one after the other."""
        for _ in range(lines):
            for pixel in range(pixels):
                place, value = line + load_int(cols + pixel * ENTRY), neutral
                for _ in range(load_int(cols + pixel * ENTRY + 8)):
                    value = combine_one(value, load_scalar(place))
                    place += apart
                store_scalar(reduced + 4 * pixel, value)
            line += between
            reduced += (pixels + LANES - 1) // LANES * BYTES

    @register_jitable
    def divisors(of_columns, share, pixels, shares):
        """Writes the divisors of a line's windows, and behind them their inverses."""
        behind = (pixels + LANES - 1) // LANES * BYTES
        for at in range(0, behind, BYTES):
            divisor = splat(f(share)) * load(of_columns + at)
            store(shares + at, divisor)
            store(shares + behind + at, splat(f(1.0)) / divisor)

    def pool(step, bases, item, scratch):
        s = F(step, bases)
        first, last, first_line, last_line = planes_of(s, item, s.lines)
        rows, cols, row, width, pixels = s.rows, s.cols, s.x_row, s.width, s.pixels
        wide, stride, apart, affine, activation = s.wide, s.stride, 4 * s.apart, s.affine, s.activation
        y_line, lo, hi, each = s.y_line, splat(s.lo), splat(s.hi), 4 * s.line
        of_columns, whole = scratch + AT_ONCE * each, (pixels + LANES - 1) // LANES * BYTES
        shares, reduced = of_columns + whole, of_columns + 3 * whole
        for at in range(0, AT_ONCE * each, BYTES):
            store(scratch + at, splat(neutral))
        inner, known = scratch + 4 * s.before, 0
        if summed:
            for pixel in range(whole // 4):
                entry = cols + min(pixel, pixels - 1) * ENTRY
                store_scalar(of_columns + 4 * pixel, f(load_int(entry + 16)))
        for plane in range(first, last):
            image, channel = plane // s.channels, plane % s.channels
            x = s.x + image * s.x_image + channel * s.x_channel
            y = s.y + image * s.y_image + channel * s.y_channel + first_line * y_line
            scale, shift = splat(f(1.0)), splat(f(0.0))
            if affine:
                scale = splat(load_scalar(s.scale + 4 * channel))
                shift = splat(load_scalar(s.shift + 4 * channel))
            line = first_line
            while line < last_line:
                lines, share = 1, load_int(rows + line * ENTRY + 16)
                most = min(AT_ONCE, last_line - line)
                while lines < most and load_int(rows + (line + lines) * ENTRY + 16) == share:
                    lines += 1
                if summed and share != known:
                    divisors(of_columns, share, pixels, shares)
                    known = share
                down(x, rows + line * ENTRY, lines, row, width, inner, each)
                if 1 <= stride <= 4:
                    along(stride, scratch, lines, each, wide, apart, pixels, shares, y, y_line,
                          affine, scale, shift, lo, hi)  # fmt: skip
                else:
                    one_by_one(inner, lines, each, cols, apart, pixels, reduced)
                    along_1(reduced, lines, whole, 1, 0, pixels, shares, y, y_line,
                            affine, scale, shift, lo, hi)  # fmt: skip
                if activation:
                    activate(activation, y, lines, y_line, pixels, s.act_a_cell)
                line += lines
                y += lines * y_line

    return step_kernel(contract)(pool)


max_planes = _planes(MaxPlanes, vmax_nan, _larger, f(-np.inf), summed=False)
avg_planes = _planes(AvgPlanes, operator.add, operator.add, f(0.0), summed=True)
