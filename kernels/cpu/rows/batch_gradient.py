"""The gradient of a batch norm in training: two sums per channel, and what follows from them everywhere.

Both passes go back through the activation behind the batch norm on their way: its gradient has no memory.
"""

import functools

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.batch import BatchGradient, BatchGradientLine, BatchProducts, Products
from bslite.kernels.cpu.math.slopes import SLOPE
from bslite.kernels.cpu.runtime.compile import Kernel, caller, makes, step_kernel
from bslite.kernels.cpu.runtime.record import band_of, reader
from bslite.kernels.cpu.vector.memory import load, load_some, store, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, fma, splat
from bslite.kernels.cpu.vector.wide import splat_wide, store_wide, widen

call_products = caller(11)
call_line = caller(9)
f = np.float32


def _before(through):
    """The gradient before an activation: of that behind it, of an element, its scale and its shift."""
    if through == "identity":
        return register_jitable(lambda g, x, scale, shift: g)
    slope = SLOPE[through]
    return register_jitable(lambda g, x, scale, shift: slope(g, fma(x, scale, shift)))


@makes(Products)
@functools.cache
def products(through: str) -> Kernel:
    """Both sums of two registers of channels, in float64: their terms cancel."""
    before = _before(through)

    def apply(g, x, step, lines, means, scale, shift, channels, out, row, pixels):
        s = P(step, 0)
        g_line, g_pixel, x_line, x_pixel = s.g_line, s.g_pixel, s.x_line, s.x_pixel
        zero, rest = splat_wide(0.0), channels - LANES
        mean_a, mean_b = widen(load_some(means, channels)), widen(load_some(means + BYTES, rest))
        scale_a, scale_b = load_some(scale, channels), load_some(scale + BYTES, rest)
        shift_a, shift_b = load_some(shift, channels), load_some(shift + BYTES, rest)
        sum_a, sum_b, along_a, along_b = zero, zero, zero, zero
        for i in range(lines):
            at, place = g + i * g_line, x + i * x_line
            for _ in range(pixels):
                xa, xb = load_some(place, channels), load_some(place + BYTES, rest)
                ga = widen(before(load_some(at, channels), xa, scale_a, shift_a))
                gb = widen(before(load_some(at + BYTES, rest), xb, scale_b, shift_b))
                sum_a, sum_b = sum_a + ga, sum_b + gb
                along_a = along_a + ga * (widen(xa) - mean_a)
                along_b = along_b + gb * (widen(xb) - mean_b)
                at += g_pixel
                place += x_pixel
        store_wide(out, sum_a)
        store_wide(out + 2 * BYTES, sum_b)
        store_wide(out + row, along_a)
        store_wide(out + row + 2 * BYTES, along_b)

    return Kernel(apply, f"batch_products_{through}", 11)


P = reader(BatchProducts)


@step_kernel(BatchProducts)
def batch_products(step, bases, item, scratch):
    """Writes ``partials [images][bands][2][padded]`` of a block of channels in a band of lines."""
    s = P(step, bases)
    image, first, last, place, channels = band_of(s, item)
    g = s.g + image * s.g_image + first * s.g_line
    x = s.x + image * s.x_image + first * s.x_line
    row = 8 * s.padded
    out = s.partials + item // s.blocks * 2 * row
    means, scale, shift, pixels, function = s.means, s.scale, s.shift, s.pixels, s.products
    while channels > 0:
        call_products(
            function, g + place, x + place, step, last - first, means + place, scale + place, shift + place,
            channels, out + 2 * place, row, pixels,
        )  # fmt: skip
        place += 2 * BYTES
        channels -= 2 * LANES


@makes(BatchGradientLine)
@functools.cache
def gradient_line(through: str) -> Kernel:
    """The gradient of a line of pixels, of numbers ``[5][padded]``: mean, offset, slope, scale, shift."""
    before = _before(through)

    @register_jitable
    def gradient(g, x, at, row):
        scale = load(at + 3 * row)
        made = before(g, x, scale, load(at + 4 * row))
        return fma(x - load(at), load(at + 2 * row), made - load(at + row)) * scale

    def apply(g, x, y, r, step, channels, table, row, pixels):
        s = G(step, 0)
        g_pixel, x_pixel, y_pixel, r_pixel, adds = s.g_pixel, s.x_pixel, s.y_pixel, s.r_pixel, s.adds
        whole = channels // LANES * BYTES
        rest = channels % LANES
        for _ in range(pixels):
            place = 0
            while place < whole:
                made = gradient(load(g + place), load(x + place), table + place, row)
                store(y + place, made + load(r + place) if adds else made)
                place += BYTES
            if rest:
                made = gradient(load_some(g + place, rest), load_some(x + place, rest), table + place, row)
                store_some(y + place, made + load_some(r + place, rest) if adds else made, rest)
            g += g_pixel
            x += x_pixel
            y += y_pixel
            r += r_pixel

    return Kernel(apply, f"batch_gradient_{through}", 9)


G = reader(BatchGradient)


@step_kernel(BatchGradient)
def batch_gradient(step, bases, item, scratch):
    """Computes a block of channels in a band of lines."""
    s = G(step, bases)
    image, first, last, start, channels = band_of(s, item)
    row, part, eps = 4 * s.padded, splat(s.part), splat(s.eps)
    means, variances, sums, products = (
        s.means + start,
        s.variances + start,
        s.sums + start,
        s.products + start,
    )
    scale, shift = s.scale + start, s.shift + start
    place, left = 0, channels
    while left > 0:
        at = scratch + place
        slope = load_some(products + place, left) * part / (load_some(variances + place, left) + eps)
        store(at, load_some(means + place, left))
        store(at + row, load_some(sums + place, left) * part)
        store(at + 2 * row, splat(f(0.0)) - slope)
        store(at + 3 * row, load_some(scale + place, left))
        store(at + 4 * row, load_some(shift + place, left))
        place += BYTES
        left -= LANES
    g = s.g + image * s.g_image + start
    x = s.x + image * s.x_image + start
    y = s.y + image * s.y_image + start
    r, r_line = s.r + image * s.r_image + start, s.r_line
    g_line, x_line, y_line, pixels, function = s.g_line, s.x_line, s.y_line, s.pixels, s.line
    for line in range(first, last):
        call_line(
            function, g + line * g_line, x + line * x_line, y + line * y_line, r + line * r_line, step,
            channels, scratch, row, pixels,
        )  # fmt: skip
