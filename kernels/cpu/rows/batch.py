"""Batch norm in training: statistics of a batch, and the totals of what its gradient sums up.

Partial results of bands of pixels, whose size depends on shapes alone, are merged in float64 in one order.
"""

import numpy as np

from bslite.kernels.contracts.cpu.batch import BatchMoments, BatchTotals
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import load, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, select_lt, splat, vabs
from bslite.kernels.cpu.vector.wide import load_wide, narrow, splat_wide, widen

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
