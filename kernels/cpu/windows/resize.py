"""Resizing NHWC images along both axes: nearest pixel, or linear interpolation. A table lists the pixels."""

from bslite.kernels.contracts.cpu.resize import ResizeLinear, ResizeNearest
from bslite.kernels.cpu.runtime.compile import offsets, step_kernel
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.partial import load_some, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, fma, load, load_int, load_scalar, splat, store

N, B = offsets(ResizeNearest), offsets(ResizeLinear)
ENTRY = 32  # bytes of an entry of linear tables: two byte offsets, and the float32 weight of each in a cell


@step_kernel(ResizeNearest)
def resize_nearest(step, bases, item, scratch):
    """Resizes a band of output lines by a block of channels; a table entry is one byte offset."""
    bands, blocks = load_int(step + N.bands), load_int(step + N.blocks)
    block, rest = item % blocks, item // blocks
    image, band = rest // bands, rest % bands
    first_line = band * load_int(step + N.band_lines)
    last_line = min(load_int(step + N.lines), first_line + load_int(step + N.band_lines))
    registers = load_int(step + N.block_registers)
    channels = min(load_int(step + N.channels) - block * registers * LANES, registers * LANES)
    x = operand(step, bases, N.x) + image * load_int(step + N.x_image) + block * registers * BYTES
    y = operand(step, bases, N.y) + image * load_int(step + N.y_image) + block * registers * BYTES
    rows, cols = operand(step, bases, N.rows), operand(step, bases, N.cols)
    y_line, y_pixel = load_int(step + N.y_line), load_int(step + N.y_pixel)
    for line in range(first_line, last_line):
        source = x + load_int(rows + 8 * line)
        for pixel in range(load_int(step + N.pixels)):
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
    bands, blocks = load_int(step + B.bands), load_int(step + B.blocks)
    block, rest = item % blocks, item // blocks
    image, band = rest // bands, rest % bands
    first_line = band * load_int(step + B.band_lines)
    last_line = min(load_int(step + B.lines), first_line + load_int(step + B.band_lines))
    registers = load_int(step + B.block_registers)
    channels = min(load_int(step + B.channels) - block * registers * LANES, registers * LANES)
    x = operand(step, bases, B.x) + image * load_int(step + B.x_image) + block * registers * BYTES
    y = operand(step, bases, B.y) + image * load_int(step + B.y_image) + block * registers * BYTES
    rows, cols = operand(step, bases, B.rows), operand(step, bases, B.cols)
    y_line, y_pixel = load_int(step + B.y_line), load_int(step + B.y_pixel)
    for line in range(first_line, last_line):
        row = rows + line * ENTRY
        top, bottom = x + load_int(row), x + load_int(row + 8)
        of_top, of_bottom = splat(load_scalar(row + 16)), splat(load_scalar(row + 24))
        for pixel in range(load_int(step + B.pixels)):
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
