"""Resizing NHWC images along both axes, by nearest pixels or linear interpolation; tensors along one axis.

A table lists the pixels, or the lines, that make up each pixel or line of the result.
"""

from bslite.kernels.contracts.cpu.resize import Resample, ResizeLinear, ResizeNearest
from bslite.kernels.cpu.moves.move import copy_run
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import band_of, reader
from bslite.kernels.cpu.vector.memory import load, load_int, load_scalar, load_some, store, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, fma, splat

N, B, R = reader(ResizeNearest), reader(ResizeLinear), reader(Resample)
ENTRY = 32  # bytes of an entry of linear tables: two byte offsets, and the float32 weight of each in a cell
TAP = 16  # bytes of an entry of tables of taps: a byte offset, and its float32 weight in a cell


@step_kernel(ResizeNearest)
def resize_nearest(step, bases, item, scratch):
    """Resizes a band of output lines by a block of channels; a table entry is one byte offset."""
    s = N(step, bases)
    image, first_line, last_line, start, channels = band_of(s, item)
    x, y = s.x + image * s.x_image + start, s.y + image * s.y_image + start
    rows, cols, y_line, y_pixel = s.rows, s.cols, s.y_line, s.y_pixel
    for line in range(first_line, last_line):
        source = x + load_int(rows + 8 * line)
        for pixel in range(s.pixels):
            a, c = source + load_int(cols + 8 * pixel), y + line * y_line + pixel * y_pixel
            left = channels
            while left >= LANES:
                store(c, load(a))
                a += BYTES
                c += BYTES
                left -= LANES
            if left:
                store_some(c, load_some(a, left), left)


@step_kernel(ResizeLinear)
def resize_linear(step, bases, item, scratch):
    """Interpolates a band of output lines by a block of channels: between two rows, then two columns."""
    s = B(step, bases)
    image, first_line, last_line, start, channels = band_of(s, item)
    x, y = s.x + image * s.x_image + start, s.y + image * s.y_image + start
    rows, cols, y_line, y_pixel = s.rows, s.cols, s.y_line, s.y_pixel
    for line in range(first_line, last_line):
        row = rows + line * ENTRY
        top, bottom = x + load_int(row), x + load_int(row + 8)
        of_top, of_bottom = splat(load_scalar(row + 16)), splat(load_scalar(row + 24))
        for pixel in range(s.pixels):
            col = cols + pixel * ENTRY
            left, right = load_int(col), load_int(col + 8)
            of_left, of_right = splat(load_scalar(col + 16)), splat(load_scalar(col + 24))
            c = y + line * y_line + pixel * y_pixel
            place, lanes = 0, channels
            while lanes > 0:
                # a zero weight still multiplies: an infinite pixel makes NaN, as in torch
                a = of_top * load_some(top + left + place, lanes)
                a = fma(of_bottom, load_some(bottom + left + place, lanes), a)
                b = of_top * load_some(top + right + place, lanes)
                b = fma(of_bottom, load_some(bottom + right + place, lanes), b)
                store_some(c + place, fma(of_right, b, of_left * a), lanes)
                place += BYTES
                lanes -= LANES


@step_kernel(Resample)
def resample(step, bases, item, scratch):
    """``y[o, i] = sum of weight * x[o, line]`` over i's taps in order; lines of ``inner`` cells.

    A single tap has weight one and is copied, whatever its cells are.
    """
    s = R(step, bases)
    out, inner = s.out, s.inner
    taps, table = s.taps, s.table
    first = item * s.item_lines
    for line in range(first, min(s.lines, first + s.item_lines)):
        x = s.x + line // out * s.x_image
        y = s.y + line // out * s.y_image + line % out * s.y_line
        tap = table + line % out * taps * TAP
        if taps == 1:
            copy_run(x + load_int(tap), y, inner)
            continue
        place, left = 0, inner
        while left > 0:
            # a zero weight still multiplies: an infinite element makes NaN, as in torch
            total = splat(load_scalar(tap + 8)) * load_some(x + load_int(tap) + place, left)
            for t in range(1, taps):
                entry = tap + t * TAP
                v = load_some(x + load_int(entry) + place, left)
                total = fma(splat(load_scalar(entry + 8)), v, total)
            store_some(y + place, total, left)
            place += BYTES
            left -= LANES
