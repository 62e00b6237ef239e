"""Sums columns where their windows lie: each element of the image adds up the windows that contain it."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.moves import Fold
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import load_scalar, store_scalar
from bslite.kernels.cpu.vector.numbers import load_double, store_double

F = reader(Fold)


@register_jitable
def place_of(at, tap, stride, dilation, pad, places):
    """The number of the window whose ``tap`` is at ``at``, -1 if there is none."""
    start = at + pad - tap * dilation
    if start < 0 or start % stride:
        return -1
    place = start // stride
    return place if place < places else -1


@step_kernel(Fold)
def fold(step, bases, item, scratch):
    """Adds in the order of the window's taps, in float64."""
    s = F(step, bases)
    channels, depth, height, width, cols = s.channels, s.n0, s.n1, s.n2, s.piece_cols
    w0, w1, w2, k0, k1, k2 = s.w0, s.w1, s.w2, s.k0, s.k1, s.k2
    s2, d2, p2, in_line = s.s2, s.d2, s.p2, -(-s.n2 // s.piece_cols)
    first = item * s.item_pieces
    for piece in range(first, min(s.pieces, first + s.item_pieces)):
        line, start = piece // in_line, piece % in_line * cols
        h, d = line % height, line // height % depth
        c, n = line // (height * depth) % channels, line // (height * depth * channels)
        x = s.source + 4 * (n * channels + c) * k0 * k1 * k2 * w0 * w1 * w2
        y = s.target + n * s.y0 + c * s.y1 + d * s.y2 + h * s.y3 + start * s.y4
        count = min(cols, width - start)
        for w in range(count):
            store_double(scratch + 8 * w, 0.0)
        for i in range(k0):
            deep = place_of(d, i, s.s0, s.d0, s.p0, w0)
            if deep < 0:
                continue
            for j in range(k1):
                down = place_of(h, j, s.s1, s.d1, s.p1, w1)
                if down < 0:
                    continue
                for k in range(k2):
                    shift = start + p2 - k * d2  # a window at place w has the tap at place * s2 - shift
                    low, high = max(0, -(-shift // s2)), min(w2, (shift + count - 1) // s2 + 1)
                    source = x + 4 * ((((i * k1 + j) * k2 + k) * w0 + deep) * w1 + down) * w2 + 4 * low
                    at = scratch + 8 * (low * s2 - shift)
                    for _ in range(low, high):
                        store_double(at, load_double(at) + load_scalar(source))
                        at += 8 * s2
                        source += 4
        for w in range(count):
            store_scalar(y + w * s.y4, np.float32(load_double(scratch + 8 * w)))
