"""Batch norm in training: statistics of a batch, and the two sums per channel that its gradient takes.

Partial results of bands of pixels, whose size depends on shapes alone, are merged in float64 in one order.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.rows import BatchMoments, BatchProducts, BatchTotals
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import band_of, reader
from bslite.kernels.cpu.vector.memory import load, load_some, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, select_lt, splat, vabs
from bslite.kernels.cpu.vector.wide import load_wide, narrow, splat_wide, store_wide, widen

INFINITE = np.float32(np.inf)
M = reader(BatchMoments)


@step_kernel(BatchMoments)
def batch_moments(step, bases, item, scratch):
    """Means and variances of a block of channels (Chan, Golub and LeVeque 1983, equations 2.1)."""
    s = M(step, bases)
    row, bands, band_lines, lines, pixels = 4 * s.padded, s.bands, s.band_lines, s.lines, s.pixels
    images = s.images
    inverse = splat_wide(1.0 / np.float64(images * lines * pixels))
    place, left = item * s.block * BYTES, s.channels - item * s.block * LANES
    for _ in range(s.block):
        if left <= 0:
            break
        total, plain = splat_wide(0.0), splat_wide(0.0)
        for image in range(images):
            for band in range(bands):
                at = s.moments + (image * bands + band) * 3 * row + place
                n = splat_wide(np.float64(min(band_lines, lines - band * band_lines) * pixels))
                plain = plain + n * widen(load(at))
                total = total + (n * widen(load(at)) + widen(load(at + row)))
        mean, rough = total * inverse, narrow(plain * inverse)
        squares = splat_wide(0.0)
        for image in range(images):
            for band in range(bands):
                at = s.moments + (image * bands + band) * 3 * row + place
                n = splat_wide(np.float64(min(band_lines, lines - band * band_lines) * pixels))
                away = widen(load(at)) - mean
                rest = widen(load(at + row))
                squares = squares + (widen(load(at + 2 * row)) + away * (rest + rest + n * away))
        # deviations from an infinite mean are NaN, the mean is not
        store_some(s.y + place, select_lt(vabs(rough), splat(INFINITE), narrow(mean), rough), left)
        store_some(s.y + s.y_row + place, narrow(squares * inverse), left)
        place += BYTES
        left -= LANES


P = reader(BatchProducts)


@register_jitable
def _products(g, x, s, lines, means, channels, out):
    """Both sums of two registers of channels over a band of lines, in float64: their terms cancel."""
    zero = splat_wide(0.0)
    mean_a, mean_b = widen(load_some(means, channels)), widen(load_some(means + BYTES, channels - LANES))
    sum_a, sum_b, along_a, along_b = zero, zero, zero, zero
    g_line, g_pixel, x_line, x_pixel, pixels = s.g_line, s.g_pixel, s.x_line, s.x_pixel, s.pixels
    row = 8 * s.padded
    for i in range(lines):
        at, place = g + i * g_line, x + i * x_line
        for _ in range(pixels):
            ga, gb = widen(load_some(at, channels)), widen(load_some(at + BYTES, channels - LANES))
            sum_a, sum_b = sum_a + ga, sum_b + gb
            along_a = along_a + ga * (widen(load_some(place, channels)) - mean_a)
            along_b = along_b + gb * (widen(load_some(place + BYTES, channels - LANES)) - mean_b)
            at += g_pixel
            place += x_pixel
    store_wide(out, sum_a)
    store_wide(out + 2 * BYTES, sum_b)
    store_wide(out + row, along_a)
    store_wide(out + row + 2 * BYTES, along_b)


@step_kernel(BatchProducts)
def batch_products(step, bases, item, scratch):
    """Writes ``partials [images][bands][2][padded]`` of a block of channels in a band of lines."""
    s = P(step, bases)
    image, first, last, place, channels = band_of(s, item)
    g = s.g + image * s.g_image + first * s.g_line
    x = s.x + image * s.x_image + first * s.x_line
    out = s.partials + item // s.blocks * 2 * 8 * s.padded
    means = s.means
    while channels > 0:
        _products(g + place, x + place, s, last - first, means + place, channels, out + 2 * place)
        place += 2 * BYTES
        channels -= 2 * LANES


T = reader(BatchTotals)


@step_kernel(BatchTotals)
def batch_totals(step, bases, item, scratch):
    """Adds the partial sums of a block of channels."""
    s = T(step, bases)
    row, parts = 8 * s.padded, s.parts
    place, left = item * s.block * BYTES, s.channels - item * s.block * LANES
    for _ in range(s.block):
        if left <= 0:
            break
        first, second = splat_wide(0.0), splat_wide(0.0)
        for part in range(parts):
            at = s.partials + part * 2 * row + 2 * place
            first = first + load_wide(at)
            second = second + load_wide(at + row)
        store_some(s.y + place, narrow(first), left)
        store_some(s.y + s.y_row + place, narrow(second), left)
        place += BYTES
        left -= LANES
