"""Sums columns where their windows lie: each element of the image adds up the windows that contain it."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.moves import Fold, FoldLines
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.memory import load_scalar, load_some, store_scalar, store_some
from bslite.kernels.cpu.vector.numbers import load_double, store_double
from bslite.kernels.cpu.vector.simd import LANES
from bslite.kernels.cpu.vector.wide import load_wide, narrow, splat_wide, store_wide, widen

F, L = reader(Fold), reader(FoldLines)


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


@step_kernel(FoldLines)
def fold_lines(step, bases, item, scratch):
    """Adds window after window, the last first, in float64: in the order of the taps, as `fold` does."""
    s = L(step, bases)
    cols, size, channels, taps, by, before = s.piece_cols, s.size, s.channels, s.taps, s.step, s.before
    in_line = -(-size // cols)
    first = item * s.item_pieces
    for piece in range(first, min(s.lines * in_line, first + s.item_pieces)):
        line, start = piece // in_line, piece % in_line * cols
        stop = min(size, start + cols)
        x = s.x + line // channels * s.x_image + line % channels * s.x_channel
        y = s.y + line // channels * s.y_image + line % channels * s.y_channel
        for i in range(start, stop, LANES):
            store_wide(scratch + 8 * (i - start), splat_wide(0.0))
        last = min(s.windows - 1, (stop - 1 + before) // by)
        for window in range(last, max(-1, (start + before - taps) // by), -1):
            begin = window * by - before
            low, high = max(start, begin), min(stop, begin + taps)
            source = x + window * s.x_window - 4 * begin
            for i in range(low, high, LANES):
                at = scratch + 8 * (i - start)
                store_wide(at, load_wide(at) + widen(load_some(source + 4 * i, high - i)))
        for i in range(start, stop, LANES):
            store_some(y + 4 * i, narrow(load_wide(scratch + 8 * (i - start))), stop - i)
