"""Sampling of an image or volume at positions: first a position's taps, then all channels by registers."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.windows import GridSample
from bslite.kernels.contracts.sampling import Beyond, Interpolation
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import (
    load_int,
    load_scalar,
    load_some,
    store_int,
    store_scalar,
    store_some,
)
from bslite.kernels.cpu.vector.simd import BYTES, LANES, fma, splat

G = reader(GridSample)
NEAREST, CUBIC = Interpolation.NEAREST.value, Interpolation.CUBIC.value
ZEROS, REFLECTION = Beyond.ZEROS.value, Beyond.REFLECTION.value
TAP = 16  # bytes: the offset of the element, and its float32 weight in a cell
MOST = GridSample.MOST_TAPS
AXIS = 16 * 4  # bytes: for one axis four indices (-1: outside) and as many float32 weights in cells
f = np.float32


@register_jitable
def padded(at, size, padding, align, axes):
    """The position moved into the image by the padding mode; a NaN becomes what torch makes of it."""
    if padding == ZEROS:
        return at
    if padding == REFLECTION:
        least, span = -0.5, np.float64(size)
        if align:
            least, span = 0.0, np.float64(size - 1)
        away = abs(at - least)
        if span == 0.0:
            at = away * 0.0
        else:
            turns, rest = np.floor(away / span), np.fmod(away, span)
            at = (rest if np.fmod(turns, 2.0) == 0.0 else span - rest) + least
    if at != at:
        return 0.0 if axes == 2 else size - 1.0
    return min(max(at, 0.0), size - 1.0)


@register_jitable
def index_of(at, size):
    """A whole position as an index, -1 for one outside (or NaN)."""
    if at >= 0.0 and at < size:
        return np.int64(at)
    return np.int64(-1)


@register_jitable
def cubic(distance):
    """Keys' cubic kernel with a = -3/4."""
    d = abs(distance)
    if d <= 1.0:
        return (1.25 * d - 2.25) * d * d + 1.0
    return ((-0.75 * d + 3.75) * d - 6.0) * d + 3.0


@register_jitable
def along(s, axis, g, size):
    """Writes indices and weights around a position along one axis to address ``axis``; returns how many."""
    mode, padding, align, axes = s.mode, s.padding, s.align, s.axes
    at = (g + 1.0) / 2.0 * (size - 1) if align else ((g + 1.0) * size - 1.0) / 2.0
    if mode == CUBIC:
        low = np.floor(at)
        for k in range(4):
            whole = low + (k - 1)
            store_int(axis + 8 * k, index_of(padded(whole, size, padding, align, axes), size))
            weight = cubic(at - whole)
            store_scalar(axis + 32 + 8 * k, f(weight))
        return 4
    at = padded(at, size, padding, align, axes)
    if mode == NEAREST:
        store_int(axis, index_of(np.rint(at), size))
        store_scalar(axis + 32, f(1.0))
        return 1
    low = np.floor(at)
    store_int(axis, index_of(low, size))
    store_int(axis + 8, index_of(low + 1.0, size))
    store_scalar(axis + 32, f(1.0 - (at - low)))
    store_scalar(axis + 40, f(at - low))
    return 2


@step_kernel(GridSample)
def grid_sample(step, bases, item, scratch):
    """Samples with contiguous channels in input and output; the grid is dense, ``[points, axes]``."""
    s = G(step, bases)
    axes, points = s.axes, s.points
    depth, height, width = s.depth, s.height, s.width
    planes, lines, pixels = s.planes, s.lines, s.pixels
    nearest = s.mode == NEAREST
    zs = scratch + MOST * TAP
    ys, xs = zs + AXIS, zs + 2 * AXIS
    first = item * s.item_points
    for point in range(first, min(points, first + s.item_points)):
        pixel, line = point % pixels, point // pixels % lines
        plane, image = point // (pixels * lines) % planes, point // (pixels * lines * planes)
        g = s.grid + 4 * axes * point
        across = along(s, xs, np.float64(load_scalar(g)), width)
        down = along(s, ys, np.float64(load_scalar(g + 4)), height)
        deep = 1
        store_int(zs, 0)
        store_scalar(zs + 32, f(1.0))
        if axes == 3:
            deep = along(s, zs, np.float64(load_scalar(g + 8)), depth)
        taps, beyond = 0, f(0.0)
        for i in range(deep):
            for j in range(down):
                for k in range(across):
                    z, y, x = load_int(zs + 8 * i), load_int(ys + 8 * j), load_int(xs + 8 * k)
                    weight = np.float64(load_scalar(zs + 32 + 8 * i)) * load_scalar(ys + 32 + 8 * j)
                    weight = f(weight * load_scalar(xs + 32 + 8 * k))
                    if z < 0 or y < 0 or x < 0:
                        if axes == 2 and not nearest:
                            beyond += weight * f(0.0)  # NaN if the position was NaN
                        continue
                    place = z * s.x1 + y * s.x2 + x * s.x3
                    store_int(scratch + TAP * taps, place)
                    store_scalar(scratch + TAP * taps + 8, weight)
                    taps += 1
        x = s.source + image * s.x0
        y = s.target + image * s.y0 + plane * s.y1 + line * s.y2 + pixel * s.y3
        left = s.channels
        while left > 0:
            total = splat(beyond)
            for t in range(taps):
                v = load_some(x + load_int(scratch + TAP * t), left)
                total = fma(splat(load_scalar(scratch + TAP * t + 8)), v, total)
            store_some(y, total, left)
            x += BYTES
            y += BYTES
            left -= LANES
