"""Normalisation of rows by their own statistics, and of pixels by those of nearby channels.

Sums of elements and of their squares run in float64, in one pass: a float32's square is exact there, and
cancellation loses 2**-53 of the mean's square, less than rounding the elements to float32 did.
"""

import math

import numpy as np

from bslite.kernels.contracts.cuda.rows import (
    LocalResponse,
    LocalResponseVariant,
    NormalizeJoin,
    NormalizePart,
    NormalizeRows,
    NormJoinVariant,
    NormVariant,
    Part,
)
from bslite.kernels.contracts.rows import Norm, Power
from bslite.kernels.cuda.rows.across import total
from bslite.kernels.cuda.rows.rows import place, take
from bslite.kernels.cuda.runtime.device import cuda, device_function
from bslite.kernels.cuda.runtime.exchange import ROOM, WARP, root
from bslite.kernels.cuda.runtime.kernel import kernel

f = np.float32
LAYER, RMS = int(Norm.LAYER), int(Norm.RMS)
#: Exponents that are computed by roots, and any other.
HALF, THREE_QUARTERS, ONE, ANY = map(int, (Power.HALF, Power.THREE_QUARTERS, Power.ONE, Power.ANY))


@device_function
def inverse_deviation(variance, eps):
    """Return ``1 / sqrt(variance + eps)``, float64; a variance that rounding made negative is zero."""
    if variance < 0.0:
        variance = 0.0
    whole = root(variance + eps)
    return 1.0 / whole if whole != 0.0 else math.inf


def _statistics(kind: int):
    """Return a device function from a row's sums to the numbers of ``(x - centre) * scale + shift``."""

    @device_function
    def statistics(plain, squares, length, eps):
        centre, shift = f(0.0), f(0.0)
        if kind == LAYER:
            mean = plain / length
            inverse = inverse_deviation(squares / length - mean * mean, eps)
            centre = f(mean)
            shift = f((np.float64(centre) - mean) * inverse)
        elif kind == RMS:
            inverse = inverse_deviation(squares / length, eps)
        else:
            norm = root(squares)
            inverse = 1.0 / (eps if norm < eps else norm)
        return centre, f(inverse), shift

    return statistics


@kernel(
    NormalizeRows,
    registers=128,
    blocks=2,
    samples=[
        NormVariant(threads=256, width=256, each=16, held=1, kind=Norm.LAYER, weighted=1, biased=1),
        NormVariant(threads=256, width=256, each=8, held=0, kind=Norm.LAYER, weighted=1, biased=0),
        NormVariant(threads=256, width=64, each=4, held=1, kind=Norm.RMS, weighted=1, biased=0),
        NormVariant(threads=256, width=8, each=4, held=1, kind=Norm.UNIT, weighted=0, biased=0),
    ],
)
def normalize_rows(threads: int, width: int, each: int, held: int, kind: int, weighted: int, biased: int):
    """Normalise each row: less its mean, over its standard deviation (kind LAYER), over the root of its mean
    square (RMS), or over the root of its sum of squares, at least eps (UNIT); then times ``weight``, plus
    ``bias``.

    Threads and loads are those of `softmax.softmax`; a row that is ``held`` is read once, others twice. With
    16 elements each, a thread may take 128 registers: two blocks to an SM, 32 KB under way, which is enough.
    """
    rows_here = threads // width
    span = width * each
    warps = max(1, threads // WARP)
    sum_of, statistics = total(width), _statistics(kind)

    def normalize_rows(x, y, weight, bias, rows, length, n1, n2, x0, x1, x2, y0, y1, y2, eps):
        room = cuda.shared.array(ROOM, np.float64)
        parts = cuda.shared.array(warps, np.float64)
        values = cuda.local.array(each, np.float32)
        me = cuda.threadIdx.x
        row = cuda.blockIdx.x * rows_here + me // width
        w = me % width
        inside = length if row < rows else 0  # all threads take part in the sums
        source, target = place(row, n1, n2, x0, x1, x2), place(row, n1, n2, y0, y1, y2)
        turns = 1 if held else -(-length // span)

        plain, squares = 0.0, 0.0
        for turn in range(turns):
            take(values, x, source, w + turn * span, width, each, inside, f(0.0))
            for e in range(each):
                value = np.float64(values[e])
                plain += value
                squares += value * value
        squares = sum_of(squares, me, room, parts)
        if kind == LAYER:
            plain = sum_of(plain, me, room, parts)
        centre, scale, shift = statistics(plain, squares, length, eps)
        for turn in range(turns):
            first = w + turn * span
            if not held:
                take(values, x, source, first, width, each, inside, f(0.0))
            for e in range(each):
                i = first + e * width
                if i < inside:
                    value = (values[e] - centre) * scale + shift
                    if weighted:
                        value = value * weight[np.uint64(i)]
                    if biased:
                        value = value + bias[np.uint64(i)]
                    y[np.uint64(target + i)] = value

    return normalize_rows


@kernel(NormalizePart, registers=64, blocks=4, samples=[Part(threads=256, each=8)])
def normalize_part(threads: int, each: int):
    """Compute ``made[row, part]``: the sum of a part of a row, and of its squares, float64. Grid: (parts,
    rows). It serves rows too few to fill a GPU.
    """
    span = threads * each
    warps = max(1, threads // WARP)
    sum_of = total(threads)

    def normalize_part(x, made, length, chunk, parts, n1, n2, x0, x1, x2):
        room = cuda.shared.array(ROOM, np.float64)
        partial = cuda.shared.array(warps, np.float64)
        values = cuda.local.array(each, np.float32)
        me = cuda.threadIdx.x
        first = cuda.blockIdx.x * chunk
        last = min(length, first + chunk)
        source = place(cuda.blockIdx.y, n1, n2, x0, x1, x2)
        plain, squares = 0.0, 0.0
        for start in range(first + me, last, span):
            take(values, x, source, start, threads, each, last, f(0.0))
            for e in range(each):
                value = np.float64(values[e])
                plain += value
                squares += value * value
        plain = sum_of(plain, me, room, partial)
        squares = sum_of(squares, me, room, partial)
        if me == 0:
            at = (cuda.blockIdx.y * np.int64(parts) + cuda.blockIdx.x) * 2
            made[np.uint64(at)] = plain
            made[np.uint64(at + 1)] = squares

    return normalize_part


@kernel(
    NormalizeJoin,
    registers=64,
    blocks=4,
    samples=[NormJoinVariant(threads=256, each=8, kind=Norm.LAYER, weighted=1, biased=1)],
)
def normalize_join(threads: int, each: int, kind: int, weighted: int, biased: int):
    """Normalise a part of a row; every block joins the sums of `normalize_part` in their order."""
    span = threads * each
    warps = max(1, threads // WARP)
    sum_of, statistics = total(threads), _statistics(kind)

    def normalize_join(x, made, y, weight, bias, length, chunk, parts, n1, n2, x0, x1, x2, y0, y1, y2, eps):
        room = cuda.shared.array(ROOM, np.float64)
        partial = cuda.shared.array(warps, np.float64)
        values = cuda.local.array(each, np.float32)
        me = cuda.threadIdx.x
        row = np.int64(cuda.blockIdx.y)
        plain, squares = 0.0, 0.0
        for part in range(me, parts, threads):
            at = (row * parts + part) * 2
            plain += made[np.uint64(at)]
            squares += made[np.uint64(at + 1)]
        plain = sum_of(plain, me, room, partial)
        squares = sum_of(squares, me, room, partial)
        centre, scale, shift = statistics(plain, squares, length, eps)

        first = cuda.blockIdx.x * chunk
        last = min(length, first + chunk)
        source, target = place(row, n1, n2, x0, x1, x2), place(row, n1, n2, y0, y1, y2)
        for start in range(first + me, last, span):
            take(values, x, source, start, threads, each, last, f(0.0))
            for e in range(each):
                i = start + e * threads
                if i < last:
                    value = (values[e] - centre) * scale + shift
                    if weighted:
                        value = value * weight[np.uint64(i)]
                    if biased:
                        value = value + bias[np.uint64(i)]
                    y[np.uint64(target + i)] = value

    return normalize_join


@kernel(
    LocalResponse,
    registers=48,
    samples=[LocalResponseVariant(threads=256, power=power) for power in (Power.THREE_QUARTERS, Power.ANY)],
)
def lrn(threads: int, power: int):
    """Compute ``x / (k + alpha * sum of squares over channels [c - below, c + above]) ** beta`` with a thread
    per channel of each pixel; a row is a pixel's channels.

    The window's loads are those of the neighbouring threads, from L1: an image is read once from memory.
    """

    def lrn(x, y, rows, length, n1, n2, x0, x1, x2, y0, y1, y2, below, above, alpha, k, beta):
        i = cuda.blockIdx.x * np.int64(threads) + cuda.threadIdx.x
        row, c = i // length, i % length
        if row < rows:
            source, target = place(row, n1, n2, x0, x1, x2), place(row, n1, n2, y0, y1, y2)
            squares = f(0.0)
            for j in range(max(c - below, 0), min(c + above, length - 1) + 1):
                value = x[np.uint64(source + j)]
                squares += value * value
            squares = alpha * squares + k
            value = x[np.uint64(source + c)]
            if power == THREE_QUARTERS:
                half = f(math.sqrt(squares))
                value = value / (half * f(math.sqrt(half)))
            elif power == HALF:
                value = value / f(math.sqrt(squares))
            elif power == ONE:
                value = value / squares
            elif power == ANY:
                value = value / f(math.pow(squares, beta))
            y[np.uint64(target + c)] = value

    return lrn
