"""Softmax of rows or of lanes, and its logarithm: maximum, then the sum of exponentials, then the result."""

import math

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.rows import LogSoftmax, LogSoftmaxLanes, Softmax, SoftmaxLanes
from bslite.kernels.cpu.math import veclog, vecmath
from bslite.kernels.cpu.rows.rows import lane_kernel, row_kernel
from bslite.kernels.cpu.vector.across import hmax, hsum
from bslite.kernels.cpu.vector.memory import load, load_first, load_some, store, store_first, store_some
from bslite.kernels.cpu.vector.simd import BYTES, LANES, divide, splat, vmax_nan
from bslite.kernels.cpu.vector.wide import narrow, splat_wide, widen

BLOCK = 64  # registers summed in float32 before the total goes to a float64: long rows keep their digits
f = np.float32
LOWEST = f(-np.inf)  # fills the lanes beyond a row: it changes neither the maximum nor the sum


@register_jitable
def _largest(x, length):
    a = splat(LOWEST)
    b, c, d = a, a, a
    while length >= 4 * LANES:
        a = vmax_nan(a, load(x))
        b = vmax_nan(b, load(x + BYTES))
        c = vmax_nan(c, load(x + 2 * BYTES))
        d = vmax_nan(d, load(x + 3 * BYTES))
        x += 4 * BYTES
        length -= 4 * LANES
    while length > 0:
        a = vmax_nan(a, load_first(x, length, LOWEST))
        x += BYTES
        length -= LANES
    return hmax(vmax_nan(vmax_nan(a, b), vmax_nan(c, d)))


def _softmax(s, item, x, y, length):
    most = splat(_largest(x, length))
    total = 0.0
    place, out, left = x, y, length
    while left > 0:
        acc = splat(f(0.0))
        for _ in range(min(left // LANES, BLOCK)):
            e = vecmath.exp(load(place) - most)
            store(out, e)
            acc = acc + e
            place += BYTES
            out += BYTES
            left -= LANES
        if 0 < left < LANES:
            e = vecmath.exp(load_first(place, left, LOWEST) - most)
            store_first(out, e, left)
            acc = acc + e
            left = 0
        total += hsum(acc)
    scale = splat(f(1.0 / total))
    for _ in range(length // LANES):
        store(y, load(y) * scale)
        y += BYTES
    if length % LANES:
        store_first(y, load_first(y, length % LANES, f(0.0)) * scale, length % LANES)


def _log_softmax(s, item, x, y, length):
    most = splat(_largest(x, length))
    total = 0.0
    place, left = x, length
    while left > 0:
        acc = splat(f(0.0))
        for _ in range(min(left // LANES, BLOCK)):
            acc = acc + vecmath.exp(load(place) - most)
            place += BYTES
            left -= LANES
        if 0 < left < LANES:
            acc = acc + vecmath.exp(load_first(place, left, LOWEST) - most)
            left = 0
        total += hsum(acc)
    log = splat(f(math.log(total)))
    for _ in range(length // LANES):
        store(y, load(x) - most - log)
        x += BYTES
        y += BYTES
    if length % LANES:
        store_first(y, load_first(x, length % LANES, LOWEST) - most - log, length % LANES)


@register_jitable
def _most_of_lanes(x, by, length, left):
    most = splat(LOWEST)
    for _ in range(length):
        most = vmax_nan(most, load_some(x, left))
        x += by
    return most


def _softmax_lanes(s, x, y, length, left):
    x_by, y_by = s.x_by, s.y_by
    most, total, out = _most_of_lanes(x, x_by, length, left), splat_wide(0.0), y
    for _ in range(length):
        e = vecmath.exp(load_some(x, left) - most)
        store_some(out, e, left)
        total = total + widen(e)
        x, out = x + x_by, out + y_by
    divisor = narrow(total)
    inverse = splat(f(1.0)) / divisor
    for _ in range(length):
        store_some(y, divide(load_some(y, left), divisor, inverse), left)
        y += y_by


def _log_softmax_lanes(s, x, y, length, left):
    x_by, y_by = s.x_by, s.y_by
    most, total, place = _most_of_lanes(x, x_by, length, left), splat_wide(0.0), x
    for _ in range(length):
        total = total + widen(vecmath.exp(load_some(place, left) - most))
        place += x_by
    log = veclog.log(narrow(total))
    for _ in range(length):
        store_some(y, load_some(x, left) - most - log, left)
        x, y = x + x_by, y + y_by


softmax = row_kernel(Softmax, _softmax)
log_softmax = row_kernel(LogSoftmax, _log_softmax)
softmax_lanes = lane_kernel(SoftmaxLanes, _softmax_lanes)
log_softmax_lanes = lane_kernel(LogSoftmaxLanes, _log_softmax_lanes)
