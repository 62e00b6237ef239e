"""Gradients of pools: the largest elements of windows, and what windows hand back to the elements they meet.

An element gathers from the windows that meet it, so each is written once, in one order of sums.
"""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.windows import MaxPoolPlaces, PoolGrad
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import band_of, reader
from bslite.kernels.cpu.vector.lanes import select_eq, whole_of
from bslite.kernels.cpu.vector.memory import load_some, store_some
from bslite.kernels.cpu.vector.pairs import real_of
from bslite.kernels.cpu.vector.simd import BYTES, LANES, select_lt, splat

f = np.float32
M = reader(MaxPoolPlaces)


@register_jitable
def taps_inside(start, dilation, kernel, size):
    """The first tap inside, and the first behind those inside, of a window that begins at ``start``."""
    first = 0 if start >= 0 else (dilation - 1 - start) // dilation
    return first, min(kernel, max(first, (size - start + dilation - 1) // dilation))


@step_kernel(MaxPoolPlaces)
def max_pool_places(step, bases, item, scratch):
    """Writes the places of the windows of a band of lines, for a block of channels."""
    s = M(step, bases)
    image, first, last, start, channels = band_of(s, item)
    x, y = s.x + image * s.x_image + start, s.y + image * s.y_image + start
    x0, x1, x2, y0, y1, y2 = s.x_step0, s.x_step1, s.x_step2, s.y_step0, s.y_step1, s.y_step2
    k0, k1, k2, d0, d1, d2 = s.kernel0, s.kernel1, s.kernel2, s.dilation0, s.dilation1, s.dilation2
    for line in range(first, last):
        z, r = line // s.windows1, line % s.windows1
        z, r = z * s.stride0 - s.before0, r * s.stride1 - s.before1
        za, zb = taps_inside(z, d0, k0, s.size0)
        ra, rb = taps_inside(r, d1, k1, s.size1)
        to = y + line // s.windows1 * y0 + line % s.windows1 * y1
        for w in range(s.windows2):
            q = w * s.stride2 - s.before2
            qa, qb = taps_inside(q, d2, k2, s.size2)
            at, left = 0, channels
            while left > 0:
                best, found, begun = splat(f(-np.inf)), splat(f(0.0)), False
                for i in range(za, zb):
                    for j in range(ra, rb):
                        place = x + (z + i * d0) * x0 + (r + j * d1) * x1 + at
                        for k in range(qa, qb):
                            value = load_some(place + (q + k * d2) * x2, left)
                            tap = splat(f((i * k1 + j) * k2 + k))
                            if not begun:
                                best, found, begun = value, tap, True
                            else:  # larger, or NaN; and NaN stays
                                tap = select_lt(value, best, found, select_eq(value, best, found, tap))
                                value = select_lt(value, best, best, select_eq(value, best, best, value))
                                found = select_eq(best, best, tap, found)
                                best = select_eq(best, best, value, best)
                store_some(to + at, whole_of(found), left)
                at += BYTES
                left -= LANES
            to += y2


G = reader(PoolGrad)


@register_jitable
def windows_at(element, before, stride, dilation, kernel, windows):
    """The first window that may meet an element, and the first behind those that may."""
    place = element + before
    first = max(0, (place - (kernel - 1) * dilation + stride - 1) // stride)
    return first, min(windows, place // stride + 1)


@step_kernel(PoolGrad)
def pool_grad(step, bases, item, scratch):
    """Writes a band of lines of elements, for a block of channels."""
    s = G(step, bases)
    image, first, last, start, channels = band_of(s, item)
    g, y = s.g + image * s.g_image + start, s.y + image * s.y_image + start
    places = s.places + image * s.places_image + start
    g0, g1, g2, p0, p1, p2 = s.g_step0, s.g_step1, s.g_step2, s.places_step0, s.places_step1, s.places_step2
    k1, k2, d0, d1, d2 = s.kernel1, s.kernel2, s.dilation0, s.dilation1, s.dilation2
    t0, t1, t2, y2, has_places = s.stride0, s.stride1, s.stride2, s.y_step2, s.has_places
    zero, dilated = splat(f(0.0)), d0 * d1 * d2 > 1
    for line in range(first, last):
        z, r = line // s.size1, line % s.size1
        to = y + z * s.y_step0 + r * s.y_step1
        za, zb = windows_at(z, s.before0, t0, d0, s.kernel0, s.windows0)
        ra, rb = windows_at(r, s.before1, t1, d1, k1, s.windows1)
        z, r = z + s.before0, r + s.before1
        for element in range(s.size2):
            qa, qb = windows_at(element, s.before2, t2, d2, k2, s.windows2)
            q = element + s.before2
            at, left = 0, channels
            while left > 0:
                total = zero
                for i in range(za, zb):
                    for j in range(ra, rb):
                        for k in range(qa, qb):
                            a, b, c = z - i * t0, r - j * t1, q - k * t2
                            if dilated:
                                if a % d0 or b % d1 or c % d2:
                                    continue
                                a, b, c = a // d0, b // d1, c // d2
                            share = load_some(g + i * g0 + j * g1 + k * g2 + at, left)
                            if has_places:
                                met = real_of(load_some(places + i * p0 + j * p1 + k * p2 + at, left))
                                share = select_eq(met, splat(f((a * k1 + b) * k2 + c)), share, zero)
                            total = total + share
                store_some(to + at, total, left)
                at += BYTES
                left -= LANES
            to += y2
