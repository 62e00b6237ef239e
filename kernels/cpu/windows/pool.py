"""Pooling over windows of NHWC images: the largest element, or the sum over a divisor.

A pair of tables, made once per plan and already cut to the image, says which rows and columns a window
covers. So one kernel does padded, dilated, overlapping and adaptive windows alike, and windows inside the
image pay nothing for the edges. An entry is three int64 cells: the byte offset of the first row (column) from
the image, their number, and the share of the divisor, which is the product of the row's and the column's.

`pool_run.py` sweeps along a line's regular windows, all of one width and one stride apart, where there is
code for that width and stride; the others are computed one by one, in the same order of sums. The store
applies an affine per channel, a clamp and an activation.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.windows import AvgPool, MaxPool
from bslite.kernels.cpu.math.activation import activate
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import band_of, reader
from bslite.kernels.cpu.vector.memory import load, load_int, load_some, store, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, divide, fma, splat, vmax, vmax_nan, vmin
from bslite.kernels.cpu.windows.pool_run import GEOMETRIES, pool_run

ENTRY = 24  # bytes of a table entry
f = np.float32


@register_jitable
def _max_four(x, rows, row, cols, col, divisor, inverse):
    a = splat(f(-np.inf))
    b, c, d = a, a, a
    for _ in range(cols):
        place = x
        for _ in range(rows):
            a = vmax_nan(a, load(place))
            b = vmax_nan(b, load(place + BYTES))
            c = vmax_nan(c, load(place + 2 * BYTES))
            d = vmax_nan(d, load(place + 3 * BYTES))
            place += row
        x += col
    return a, b, c, d


@register_jitable
def _max_one(x, rows, row, cols, col, divisor, inverse, lanes):
    a = splat(f(-np.inf))
    for _ in range(cols):
        place = x
        for _ in range(rows):
            a = vmax_nan(a, load_some(place, lanes))
            place += row
        x += col
    return a


@register_jitable
def _mean_four(x, rows, row, cols, col, divisor, inverse):
    # each column first, then the columns: rounding errors grow with rows + columns, not their product
    zero = splat(f(0.0))
    a, b, c, d = zero, zero, zero, zero
    for _ in range(cols):
        place = x
        ca, cb, cc, cd = zero, zero, zero, zero
        for _ in range(rows):
            ca = ca + load(place)
            cb = cb + load(place + BYTES)
            cc = cc + load(place + 2 * BYTES)
            cd = cd + load(place + 3 * BYTES)
            place += row
        a, b, c, d = a + ca, b + cb, c + cc, d + cd
        x += col
    divisor, inverse = splat(divisor), splat(inverse)
    return (
        divide(a, divisor, inverse),
        divide(b, divisor, inverse),
        divide(c, divisor, inverse),
        divide(d, divisor, inverse),
    )


@register_jitable
def _mean_one(x, rows, row, cols, col, divisor, inverse, lanes):
    a = splat(f(0.0))
    for _ in range(cols):
        place = x
        c = splat(f(0.0))
        for _ in range(rows):
            c = c + load_some(place, lanes)
            place += row
        a = a + c
        x += col
    return divide(a, splat(divisor), splat(inverse))


@register_jitable
def _finish(value, has_affine, scale, shift, lo, hi):
    if has_affine:
        value = fma(value, load(scale), load(shift))
    return vmin(hi, vmax(lo, value))


def _pool(contract, four, one, run):
    F = reader(contract)

    @register_jitable
    def window(x, rows, row, cols, col, share, y, channels, has_affine, scale, shift, lo, hi):
        """Computes ``channels`` of one output pixel."""
        divisor = f(share)
        inverse = f(1.0) / divisor
        left = channels
        while left >= 4 * LANES:
            v0, v1, v2, v3 = four(x, rows, row, cols, col, divisor, inverse)
            store(y, _finish(v0, has_affine, scale, shift, lo, hi))
            store(y + BYTES, _finish(v1, has_affine, scale + BYTES, shift + BYTES, lo, hi))
            store(y + 2 * BYTES, _finish(v2, has_affine, scale + 2 * BYTES, shift + 2 * BYTES, lo, hi))
            store(y + 3 * BYTES, _finish(v3, has_affine, scale + 3 * BYTES, shift + 3 * BYTES, lo, hi))
            x, y, scale, shift = x + 4 * BYTES, y + 4 * BYTES, scale + 4 * BYTES, shift + 4 * BYTES
            left -= 4 * LANES
        while left > 0:
            v = one(x, rows, row, cols, col, divisor, inverse, left)
            store_some(y, _finish(v, has_affine, scale, shift, lo, hi), left)
            x, y, scale, shift = x + BYTES, y + BYTES, scale + BYTES, shift + BYTES
            left -= LANES

    def pool(step, bases, item, scratch):
        s = F(step, bases)
        image, first_line, last_line, start, channels = band_of(s, item)
        x, y = s.x + image * s.x_image + start, s.y + image * s.y_image + start
        rows, cols, scale, shift = s.rows, s.cols, s.scale + start, s.shift + start
        x_row, x_pixel, y_line, y_pixel = s.x_row, s.x_pixel, s.y_line, s.y_pixel
        plane_lines, y_plane, pixels = s.plane_lines, s.y_plane, s.pixels
        affine, activation = s.affine, s.activation
        low, high = s.lo, s.hi
        lo, hi = splat(low), splat(high)
        run_first, run_pixels, wide, stride = s.run_first, s.run_pixels, s.run_wide, s.run_stride
        whole = channels // LANES if (wide, stride) in GEOMETRIES else 0  # registers to sweep
        strip, strips = s.strip, s.strips if whole > 0 else 1
        for number in range(strips):
            begin = run_first + number * strip if number > 0 else 0
            end = run_first + (number + 1) * strip if number < strips - 1 else pixels
            run_begin, run_end = max(begin, run_first), min(end, run_first + run_pixels)
            for line in range(first_line, last_line):
                top = x + load_int(rows + line * ENTRY)
                tall = load_int(rows + line * ENTRY + 8)
                share = load_int(rows + line * ENTRY + 16)
                target = y + line // plane_lines * y_plane + line % plane_lines * y_line
                swept = whole if tall > 0 and run_end > run_begin else 0
                if swept > 0:
                    col = cols + run_begin * ENTRY
                    divisor = f(share * load_int(col + 16))
                    for at in range(0, swept * BYTES, BYTES):
                        run(wide, stride, top + load_int(col) + at, x_row, x_pixel, tall,
                            target + run_begin * y_pixel + at, y_pixel, run_end - run_begin,
                            scale + at if affine else 0, shift + at, divisor, f(1.0) / divisor,
                            low, high)  # fmt: skip
                pixel = begin
                while pixel < end:
                    done = swept if run_begin <= pixel < run_end else 0
                    if done * LANES == channels:
                        pixel = run_end
                        continue
                    at, col = done * BYTES, cols + pixel * ENTRY
                    window(top + load_int(col) + at, tall, x_row, load_int(col + 8), x_pixel,
                           share * load_int(col + 16), target + pixel * y_pixel + at, channels - done * LANES,
                           affine, scale + at, shift + at, lo, hi)  # fmt: skip
                    pixel += 1
                if activation:
                    target += begin * y_pixel
                    activate(activation, target, end - begin, y_pixel, channels, s.act_a_cell)

    return step_kernel(contract)(pool)


max_pool = _pool(MaxPool, _max_four, _max_one, pool_run(summed=False))
avg_pool = _pool(AvgPool, _mean_four, _mean_one, pool_run(summed=True))
