"""Softmax of rows, and its logarithm: maximum, then the sum of exponentials, then the result.

Several blocks share rows that are few and long, in two launches: the first computes maximum and sum of every
part; in the second every block joins those, in the order of the parts, and computes its part of the result.
"""

import math

import numpy as np

from bslite.kernels.contracts.cuda.rows import (
    Part,
    Softmax,
    SoftmaxJoin,
    SoftmaxJoinVariant,
    SoftmaxPart,
    SoftmaxVariant,
)
from bslite.kernels.cuda.math.functions import larger
from bslite.kernels.cuda.rows.across import most, total
from bslite.kernels.cuda.rows.rows import place, take
from bslite.kernels.cuda.runtime.device import cuda, device_function
from bslite.kernels.cuda.runtime.exchange import ROOM, WARP, exp, log
from bslite.kernels.cuda.runtime.kernel import kernel

f = np.float32
LOWEST = f(-np.inf)


@device_function
def scale_of(whole, log_of):
    """Return the factor of ``exp(x - max)``, or the subtrahend of its logarithm, from the full sum."""
    if log_of:
        return f(log(whole))
    return f(1.0 / whole) if whole != 0.0 else f(whole)


@device_function
def rescaled(sum_of, largest, other):
    """Return a sum of exponentials relative to ``largest`` as one relative to ``other``; that of no elements
    is 0.
    """
    return 0.0 if largest == LOWEST else sum_of * math.exp(np.float64(largest) - np.float64(other))


@kernel(
    Softmax,
    registers=64,
    blocks=4,
    samples=[
        SoftmaxVariant(threads=256, width=256, each=16, held=1, log_of=0),
        SoftmaxVariant(threads=256, width=256, each=8, held=0, log_of=1),
        SoftmaxVariant(threads=256, width=32, each=4, held=1, log_of=1),
        SoftmaxVariant(threads=256, width=1, each=4, held=1, log_of=0),
    ],
)
def softmax(threads: int, width: int, each: int, held: int, log_of: int):
    """Compute ``exp(x - max) / sum(exp(x - max))`` of each row, or its logarithm; ``width`` threads a row.

    ``held``: ``each * width`` is a row or more, which is loaded once and stays in registers; else it is read
    three times, from L2 if it does not stay in L1. Neighbouring threads load neighbours: a warp's request is
    a whole 128 bytes, so wider loads would save instructions, not bandwidth; ``each`` of them are under way
    per thread. At 64 registers an SM holds 1,024 threads: with four loads each, 16 KB under way, more than
    HBM's latency needs. The sum runs in float64, warps by shuffles.
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
        inside = length if row < rows else 0  # all threads take part in the sums
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
                if first + e * width < inside:  # with an infinite maximum, elements beyond would be NaN
                    power = exp(values[e] - best)
                    sum_here += np.float64(power)
                    if held and not log_of:
                        values[e] = power
        whole = sum_of(sum_here, me, room, parts)

        scale = scale_of(whole, log_of)
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


@kernel(SoftmaxPart, registers=64, blocks=4, samples=[Part(threads=256, each=8)])
def softmax_part(threads: int, each: int):
    """Compute ``made[row, part] = (max, sum(exp(x - max)))``, float64, over a part of a row. Grid: (parts,
    rows).

    There is one pass: a thread rescales its sum to the maximum so far with every ``each`` elements, whose
    loads are under way at once.
    """
    span = threads * each
    warps = max(1, threads // WARP)
    largest, sum_of = most(threads), total(threads)

    def softmax_part(x, made, length, chunk, parts, n1, n2, x0, x1, x2):
        room = cuda.shared.array(ROOM, np.float64)
        partial = cuda.shared.array(warps, np.float64)
        values = cuda.local.array(each, np.float32)
        me = cuda.threadIdx.x
        first = cuda.blockIdx.x * chunk
        last = min(length, first + chunk)
        source = place(cuda.blockIdx.y, n1, n2, x0, x1, x2)
        best, sum_here = LOWEST, 0.0
        for start in range(first + me, last, span):
            take(values, x, source, start, threads, each, last, LOWEST)
            before = best
            for e in range(each):
                best = larger(best, values[e])
            if best != before:
                sum_here = rescaled(sum_here, before, best)
            if best != LOWEST:
                for e in range(each):
                    if start + e * threads < last:
                        sum_here += np.float64(exp(values[e] - best))
        whole = f(largest(np.float64(best), me, room, partial))
        sum_here = sum_of(rescaled(sum_here, best, whole), me, room, partial)
        if me == 0:
            at = (cuda.blockIdx.y * np.int64(parts) + cuda.blockIdx.x) * 2
            made[np.uint64(at)] = np.float64(whole)
            made[np.uint64(at + 1)] = sum_here

    return softmax_part


@kernel(SoftmaxJoin, registers=64, blocks=4, samples=[SoftmaxJoinVariant(threads=256, each=8, log_of=0)])
def softmax_join(threads: int, each: int, log_of: int):
    """Compute a part of a row's result, from the maxima and sums of all parts from `softmax_part`."""
    span = threads * each
    warps = max(1, threads // WARP)
    largest, sum_of = most(threads), total(threads)

    def softmax_join(x, made, y, length, chunk, parts, n1, n2, x0, x1, x2, y0, y1, y2):
        room = cuda.shared.array(ROOM, np.float64)
        partial = cuda.shared.array(warps, np.float64)
        values = cuda.local.array(each, np.float32)
        me = cuda.threadIdx.x
        row = np.int64(cuda.blockIdx.y)
        best = LOWEST
        for part in range(me, parts, threads):
            best = larger(best, f(made[np.uint64((row * parts + part) * 2)]))
        best = f(largest(np.float64(best), me, room, partial))
        sum_here = 0.0
        for part in range(me, parts, threads):
            at = (row * parts + part) * 2
            sum_here += rescaled(made[np.uint64(at + 1)], f(made[np.uint64(at)]), best)
        scale = scale_of(sum_of(sum_here, me, room, partial), log_of)

        first = cuda.blockIdx.x * chunk
        last = min(length, first + chunk)
        source, target = place(row, n1, n2, x0, x1, x2), place(row, n1, n2, y0, y1, y2)
        for start in range(first + me, last, span):
            take(values, x, source, start, threads, each, last, LOWEST)
            for e in range(each):
                i = start + e * threads
                if i < last:
                    value = values[e] - best - scale if log_of else exp(values[e] - best) * scale
                    y[np.uint64(target + i)] = value

    return softmax_join
