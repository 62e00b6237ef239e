"""Sums columns where their windows lie: each element of the image adds up the windows that contain it."""

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.contracts.cpu.moves import Fold
from bslite.kernels.cpu.runtime.compile import offsets, step_kernel
from bslite.kernels.cpu.vector.operand import operand
from bslite.kernels.cpu.vector.simd import load_int, load_scalar, store_scalar

F = offsets(Fold)


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
    channels, depth, height = load_int(step + F.channels), load_int(step + F.n0), load_int(step + F.n1)
    width = load_int(step + F.n2)
    w0, w1, w2 = load_int(step + F.w0), load_int(step + F.w1), load_int(step + F.w2)
    k0, k1, k2 = load_int(step + F.k0), load_int(step + F.k1), load_int(step + F.k2)
    s2, d2, p2 = load_int(step + F.s2), load_int(step + F.d2), load_int(step + F.p2)
    first = item * load_int(step + F.item_lines)
    for line in range(first, min(load_int(step + F.lines), first + load_int(step + F.item_lines))):
        h, d = line % height, line // height % depth
        c, n = line // (height * depth) % channels, line // (height * depth * channels)
        x = operand(step, bases, F.source) + 4 * (n * channels + c) * k0 * k1 * k2 * w0 * w1 * w2
        y = operand(step, bases, F.target) + n * load_int(step + F.y0) + c * load_int(step + F.y1)
        y += d * load_int(step + F.y2) + h * load_int(step + F.y3)
        for w in range(width):
            total = 0.0
            for i in range(k0):
                deep = place_of(d, i, load_int(step + F.s0), load_int(step + F.d0), load_int(step + F.p0), w0)
                if deep < 0:
                    continue
                for j in range(k1):
                    down = place_of(
                        h, j, load_int(step + F.s1), load_int(step + F.d1), load_int(step + F.p1), w1
                    )
                    if down < 0:
                        continue
                    for k in range(k2):
                        across = place_of(w, k, s2, d2, p2, w2)
                        if across >= 0:
                            tap = (i * k1 + j) * k2 + k
                            total += load_scalar(x + 4 * (((tap * w0 + deep) * w1 + down) * w2 + across))
            store_scalar(y + w * load_int(step + F.y4), np.float32(total))
