"""Softmax of rows, and its logarithm: maximum, then the sum of exponentials, then the result."""

from __future__ import annotations

import numpy as np

from bslite.kernels.cuda.across import most, total
from bslite.kernels.cuda.device import cuda
from bslite.kernels.cuda.exchange import ROOM, WARP, exp, log
from bslite.kernels.cuda.functions import larger
from bslite.kernels.cuda.kernel import kernel
from bslite.kernels.cuda.rows import ROWS, THREADS, place, take

f = np.float32
LOWEST = f(-np.inf)


@kernel(
    f"x f4[], y f4[], {ROWS}",
    threads=THREADS,
    registers=64,
    blocks=4,
    samples=[
        {"threads": 256, "width": 256, "each": 16, "held": 1, "log_of": 0},
        {"threads": 256, "width": 256, "each": 8, "held": 0, "log_of": 1},
        {"threads": 256, "width": 32, "each": 4, "held": 1, "log_of": 1},
        {"threads": 256, "width": 1, "each": 4, "held": 1, "log_of": 0},
    ],
)
def softmax(threads: int, width: int, each: int, held: int, log_of: int):
    """``exp(x - max) / sum(exp(x - max))`` of each row, or its logarithm; ``width`` threads to a row.

    ``held``: ``each * width`` is a row or more, which is loaded once and stays in registers; else it is
    read three times, from L2 if it does not stay in L1. Neighbouring threads load neighbours: a warp's
    request is 128 bytes whole, so that wider loads would save instructions, not bandwidth; ``each`` of them
    are under way per thread. At 64 registers an SM holds 1,024 threads: with four loads each, 16 KB under
    way, more than HBM's latency needs. The sum runs in float64, warps by shuffles.
    """
    rows_here = threads // width
    span = width * each
    warps = max(1, threads // WARP)
    largest, sum_of = most(width), total(width)

    def softmax(x, y, rows, length, n1, n2, x0, x1, x2, y0, y1, y2):
        room = cuda.shared.array(ROOM, np.float64)
        parts = cuda.shared.array(warps, np.float64)
        values = cuda.local.array(each, np.float32)
        me = cuda.threadIdx.x
        row = cuda.blockIdx.x * rows_here + me // width
        w = me % width
        inside = length if row < rows else 0  # all threads go through the sums
        source, target = place(row, n1, n2, x0, x1, x2), place(row, n1, n2, y0, y1, y2)
        turns = 1 if held else -(-length // span)

        best = LOWEST
        for turn in range(turns):
            take(values, x, source, w + turn * span, width, each, inside, LOWEST)
            for e in range(each):
                best = larger(best, values[e])
        best = f(largest(np.float64(best), me, room, parts))

        sum_here = 0.0
        for turn in range(turns):
            first = w + turn * span
            if not held:
                take(values, x, source, first, width, each, inside, LOWEST)
            for e in range(each):
                if first + e * width < inside:  # of an infinite maximum, what is beyond would be NaN
                    power = exp(values[e] - best)
                    sum_here += np.float64(power)
                    if held and not log_of:
                        values[e] = power
        whole = sum_of(sum_here, me, room, parts)

        scale = f(log(whole)) if log_of else f(1.0 / whole) if whole != 0.0 else f(whole)
        for turn in range(turns):
            first = w + turn * span
            if not held:
                take(values, x, source, first, width, each, inside, LOWEST)
            for e in range(each):
                i = first + e * width
                if i < inside:
                    if log_of:
                        value = values[e] - best - scale
                    elif held:
                        value = values[e] * scale
                    else:
                        value = exp(values[e] - best) * scale
                    y[np.uint64(target + i)] = value

    return softmax
