"""Normalisation by a tensor's own statistics: norms of rows, group norm, local response norm."""

import math

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.rows import (
    ChannelMoments,
    GroupScales,
    LayerNorm,
    LocalResponse,
    RmsNorm,
    RowRecord,
    ScalePixels,
    UnitNorm,
)
from bslite.kernels.contracts.rows import Norm, Power
from bslite.kernels.cpu.math.activation import IN_L1, activate
from bslite.kernels.cpu.rows.norm_tile import TILES, norm_tile
from bslite.kernels.cpu.rows.rows import row_kernel
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import band_of, reader
from bslite.kernels.cpu.vector.memory import load, load_scalar, load_some, store, store_scalar, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, fma, splat, vmax, vmin, vsqrt

f = np.float32


@register_jitable
def _inverse_deviation(variance, eps):
    """``1 / sqrt(variance + eps)``; a negative variance, from rounding, counts as zero."""
    if variance < 0.0:
        variance = 0.0
    return 1.0 / math.sqrt(variance + eps)


def _norm_kernel(contract: type[RowRecord], norm: Norm, affine):
    """Register a step kernel that normalises rows so. ``affine(s)``: addresses of weights and of biases."""
    of, tile, affine = reader(contract), norm_tile(norm), register_jitable(affine)

    def rows(step, bases, item, scratch):
        s = of(step, bases)
        first = item * s.item_rows
        last = min(s.rows, first + s.item_rows)
        n1, n2, length, eps = s.n1, s.n2, s.length, np.float64(s.eps)
        x, x0, x1, x2, y, y0, y1, y2 = s.x, s.x0, s.x1, s.x2, s.y, s.y0, s.y1, s.y2
        inverse_length = 1.0 / length
        weight, bias = affine(s)
        i0, i1, i2 = first // (n1 * n2), first // n2 % n1, first % n2
        while first < last:
            source, target = x + i0 * x0 + i1 * x1 + i2 * x2, y + i0 * y0 + i1 * y1 + i2 * y2
            run = min(last - first, n2 - i2)  # rows equally far apart
            first += run
            while run > 0:
                count = 1
                for most, longest in TILES:
                    if most <= run and length <= longest:
                        count = most
                        break
                tile(count, source, x2, target, y2, length, weight, bias, inverse_length, eps)
                source, target, run = source + count * x2, target + count * y2, run - count
            i1, i2 = i1 + 1, 0
            if i1 == n1:
                i0, i1 = i0 + 1, 0

    return step_kernel(contract)(rows)


layer_norm = _norm_kernel(
    LayerNorm, Norm.LAYER, lambda s: (s.weight if s.has_weight else 0, s.bias if s.has_bias else 0)
)
rms_norm = _norm_kernel(RmsNorm, Norm.RMS, lambda s: (s.weight if s.has_weight else 0, 0))
normalize = _norm_kernel(UnitNorm, Norm.UNIT, lambda s: (0, 0))

# Group norm takes three steps, each spread over all threads even for few groups: the statistics of every
# channel in every band of lines; from them, the statistics of each group; every pixel scaled and shifted.

M = reader(ChannelMoments)


@register_jitable
def _moments(x, line, lines, pixel, pixels, channels, out, row):
    """Moments of two registers of channels: mean, sum of deviations, sum of squares, ``row`` bytes apart."""
    zero = splat(f(0.0))
    total_a, total_b = zero, zero
    for i in range(lines):
        a, b, place = zero, zero, x + i * line
        for _ in range(pixels):
            a = a + load_some(place, channels)
            b = b + load_some(place + BYTES, channels - LANES)
            place += pixel
        total_a, total_b = total_a + a, total_b + b
    count = splat(f(lines * pixels))
    mean_a, mean_b = total_a / count, total_b / count
    rest_a, rest_b, squares_a, squares_b = zero, zero, zero, zero
    for i in range(lines):
        a, b, place = zero, zero, x + i * line
        for _ in range(pixels):
            da = load_some(place, channels) - mean_a
            db = load_some(place + BYTES, channels - LANES) - mean_b
            rest_a, rest_b = rest_a + da, rest_b + db
            a, b = fma(da, da, a), fma(db, db, b)
            place += pixel
        squares_a, squares_b = squares_a + a, squares_b + b
    store(out, mean_a)
    store(out + BYTES, mean_b)
    store(out + row, rest_a)
    store(out + row + BYTES, rest_b)
    store(out + 2 * row, squares_a)
    store(out + 2 * row + BYTES, squares_b)


@step_kernel(ChannelMoments)
def channel_moments(step, bases, item, scratch):
    """Writes ``moments [images][bands][3][padded]`` of a block of channels in a band of lines."""
    s = M(step, bases)
    image, first, last, place, channels = band_of(s, item)
    row = 4 * s.padded
    x = s.x + image * s.x_image + first * s.x_line
    out = s.moments + item // s.blocks * 3 * row
    while channels > 0:
        _moments(x + place, s.x_line, last - first, s.x_pixel, s.pixels, channels, out + place, row)
        place += 2 * BYTES
        channels -= 2 * LANES


G = reader(GroupScales)


@step_kernel(GroupScales)
def group_scales(step, bases, item, scratch):
    """Writes centre, scale and shift of each channel, by its group: ``scales [images][3][padded]``."""
    s = G(step, bases)
    groups, width, row = s.groups, s.group_channels, 4 * s.padded
    bands, band_lines, lines, pixels = s.bands, s.band_lines, s.lines, s.pixels
    weight, bias, has_weight, has_bias = s.weight, s.bias, s.has_weight, s.has_bias
    count = float(lines * pixels * width)
    first = item * s.item_groups
    for group in range(first, min(s.all_groups, first + s.item_groups)):
        image, start = group // groups, group % groups * width
        moments = s.moments + image * bands * 3 * row + 4 * start
        total = 0.0
        for band in range(bands):
            n = float(min(band_lines, lines - band * band_lines) * pixels)
            for c in range(width):
                place = moments + band * 3 * row + 4 * c
                total += n * load_scalar(place) + load_scalar(place + row)
        mean = total / count
        squares = 0.0
        for band in range(bands):
            n = float(min(band_lines, lines - band * band_lines) * pixels)
            for c in range(width):
                place = moments + band * 3 * row + 4 * c
                away = load_scalar(place) - mean
                squares += load_scalar(place + 2 * row) + away * (2.0 * load_scalar(place + row) + n * away)
        inverse = _inverse_deviation(squares / count, s.eps)
        scales = s.scales + image * 3 * row + 4 * start
        for c in range(width):
            scale = inverse * (load_scalar(weight + 4 * (start + c)) if has_weight else f(1.0))
            shift = (f(mean) - mean) * scale + (load_scalar(bias + 4 * (start + c)) if has_bias else f(0.0))
            store_scalar(scales + 4 * c, f(mean))
            store_scalar(scales + row + 4 * c, f(scale))
            store_scalar(scales + 2 * row + 4 * c, f(shift))


A = reader(ScalePixels)


@step_kernel(ScalePixels)
def scale_pixels(step, bases, item, scratch):
    """``(x - centre) * scale + shift`` per image and channel, for a band of lines by a block of channels;
    then an activation, of what lies in L1.
    """
    s = A(step, bases)
    image, first_line, last_line, start, channels = band_of(s, item)
    row = 4 * s.padded
    x = s.x + image * s.x_image + start
    y = s.y + image * s.y_image + start
    scales = s.scales + image * 3 * row + start
    x_line, x_pixel, y_line, y_pixel, pixels = s.x_line, s.x_pixel, s.y_line, s.y_pixel, s.pixels
    lo, hi, activation = splat(s.lo), splat(s.hi), s.activation
    most = max(1, IN_L1 // channels) if activation else pixels
    for line in range(first_line, last_line):
        for begin in range(0, pixels, most):
            count = min(most, pixels - begin)
            source, target = x + line * x_line + begin * x_pixel, y + line * y_line + begin * y_pixel
            for pixel in range(count):
                place, left = 0, channels
                while left > 0:
                    value = load_some(source + pixel * x_pixel + place, left) - load(scales + place)
                    value = fma(value, load(scales + row + place), load(scales + 2 * row + place))
                    store_some(target + pixel * y_pixel + place, vmin(hi, vmax(lo, value)), left)
                    place += BYTES
                    left -= LANES
            if activation:
                activate(activation, target, count, y_pixel, channels, s.act_a_cell)


#: Exponents that roots compute exactly to a rounding or two, and any other.
HALF, THREE_QUARTERS, ONE, ANY = map(int, (Power.HALF, Power.THREE_QUARTERS, Power.ONE, Power.ANY))


def _lrn(s, item, x, y, length):
    # squares of a row between zeros, so that the sum over neighbours is a few shifted loads
    work = s.work + item * s.work_bytes
    below, above = s.below, s.above
    alpha, k, power = splat(s.alpha), splat(s.k), s.power
    zero = splat(f(0.0))
    place = 0
    while place < below:
        store(work + 4 * place, zero)
        place += LANES
    squares = work + 4 * below
    place = 0
    while place < length:
        value = load_some(x + 4 * place, length - place)
        store(squares + 4 * place, value * value)
        place += LANES
    stop = place + above
    while place < stop:
        store(squares + 4 * place, zero)
        place += LANES
    place = 0
    while place < length:
        total = zero
        for i in range(below + above + 1):
            total = total + load(work + 4 * (place + i))
        total = fma(alpha, total, k)
        value = load_some(x + 4 * place, length - place)
        if power == THREE_QUARTERS:
            root = vsqrt(total)
            value = value / (root * vsqrt(root))
        elif power == HALF:
            value = value / vsqrt(total)
        elif power == ONE:
            value = value / total
        elif power == ANY:
            store(work + 4 * place, total)  # overwrites squares that no later register needs
        store_some(y + 4 * place, value, length - place)
        place += LANES
    if power == ANY:  # rare: the C library's power, one element at a time
        beta = float(s.beta)
        for c in range(length):
            store_scalar(y + 4 * c, f(load_scalar(x + 4 * c) / math.pow(load_scalar(work + 4 * c), beta)))


lrn = row_kernel(LocalResponse, _lrn)
