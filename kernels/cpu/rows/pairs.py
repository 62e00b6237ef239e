"""Rows of numbers become cells: pairs of int16, or quads of 8 bits."""

import numpy as np

from bslite.kernels.contracts.cpu.integer import Pairs, Quads
from bslite.kernels.cpu.rows.rows import after
from bslite.kernels.cpu.runtime.compile import step_kernel
from bslite.kernels.cpu.runtime.record import reader
from bslite.kernels.cpu.vector.lanes import lane, with_lane
from bslite.kernels.cpu.vector.memory import load_scalar, load_some, store_scalar, store_some
from bslite.kernels.cpu.vector.pairs import before, paired, store_number
from bslite.kernels.cpu.vector.quads import quads_of, store_quads
from bslite.kernels.cpu.vector.simd import BYTES, LANES, divide, rint, splat, vmax, vmin

f = np.float32
P = reader(Pairs)


@step_kernel(Pairs)
def pairs(step, bases, item, scratch):
    """Rounds rows of numbers to int16 and puts two into each cell."""
    s = P(step, bases)
    n1, n2, groups, channels, scaled = s.n1, s.n2, s.groups, s.channels, s.scaled
    x0, x1, x2, y0, y1, y2 = s.x0, s.x1, s.x2, s.y0, s.y1, s.y2
    source, target = s.source, s.target
    scale, inverse, low, high = f(1.0), f(1.0), f(-32768.0), f(32767.0)
    if scaled:
        scale, zero = load_scalar(s.scale), load_scalar(s.zero)
        if zero != zero:  # bounds that are NaN would be passed over
            scale = zero
        inverse, low, high = f(1.0) / scale, -zero, f(255.0) - zero
    scales, inverses, lows, highs = splat(scale), splat(inverse), splat(low), splat(high)
    cells = (channels + 1) // 2
    first = item * s.item_rows
    i0, i1, i2 = first // (n1 * n2), first // n2 % n1, first % n2
    for _ in range(first, min(s.rows, first + s.item_rows)):
        x, y = source + i0 * x0 + i1 * x1 + i2 * x2, target + i0 * y0 + i1 * y1 + i2 * y2
        i0, i1, i2 = after(i0, i1, i2, n1, n2)
        for _ in range(groups):
            if channels < LANES:  # cell by cell: a few masked stores take longer
                for c in range(0, channels, 2):
                    if scaled:
                        a = splat(load_scalar(x + 4 * c))
                        if c + 1 < channels:
                            a = with_lane(a, 1, load_scalar(x + 4 * c + 4))
                        a = vmin(highs, vmax(lows, rint(divide(a, scales, inverses))))
                        if c + 1 == channels:
                            a = before(a, 1)
                        store_scalar(y + 2 * c, lane(paired(a, a), 0))
                        continue
                    store_number(y + 2 * c, load_scalar(x + 4 * c))
                    store_number(y + 2 * c + 2, load_scalar(x + 4 * c + 4) if c + 1 < channels else f(0.0))
                x += 4 * channels
                y += 4 * cells
                continue
            for c in range(0, channels, 2 * LANES):
                a, b = load_some(x + 4 * c, channels - c), load_some(x + 4 * c + BYTES, channels - c - LANES)
                if scaled:
                    a, b = divide(a, scales, inverses), divide(b, scales, inverses)
                    a, b = vmin(highs, vmax(lows, rint(a))), vmin(highs, vmax(lows, rint(b)))
                    if channels % 2:
                        a, b = before(a, channels - c), before(b, channels - c - LANES)
                store_some(y + 2 * c, paired(a, b), cells - c // 2)
            x += 4 * channels
            y += 4 * cells


Q = reader(Quads)


@step_kernel(Quads)
def quads(step, bases, item, scratch):
    """Rounds rows of numbers to 8 bits and puts four into each cell."""
    s = Q(step, bases)
    n1, n2, groups, channels = s.n1, s.n2, s.groups, s.channels
    x0, x1, x2, y0, y1, y2 = s.x0, s.x1, s.x2, s.y0, s.y1, s.y2
    source, target = s.source, s.target
    least = splat(s.least)
    most = splat(s.least + f(255.0))
    cells = (channels + 3) // 4
    first = item * s.item_rows
    i0, i1, i2 = first // (n1 * n2), first // n2 % n1, first % n2
    for _ in range(first, min(s.rows, first + s.item_rows)):
        x, y = source + i0 * x0 + i1 * x1 + i2 * x2, target + i0 * y0 + i1 * y1 + i2 * y2
        i0, i1, i2 = after(i0, i1, i2, n1, n2)
        for _ in range(groups):
            for c in range(0, channels, 2 * LANES):
                left = channels - c
                a, b = load_some(x + 4 * c, left), load_some(x + 4 * c + BYTES, left - LANES)
                a, b = vmin(most, vmax(a, least)), vmin(most, vmax(b, least))  # of NaN the least
                if left >= 2 * LANES:
                    store_quads(y + c, a, b, least)
                    continue
                a, b = rint(a) - least, rint(b) - least
                a, b = before(a, left), before(b, left - LANES)
                store_some(y + c, quads_of(a, b, splat(f(0.0))), cells - c // 4)
            x += 4 * channels
            y += 4 * cells
