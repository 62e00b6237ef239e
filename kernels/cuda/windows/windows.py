"""Windows over images, volumes and signals, one output element a thread, where the stack kernel has no code.

A table for each axis lists the elements that a pool's windows cover; the plan computes it, already cut to the
image (bslite/plan/shared/spans.py has the same for the CPU): first element, number of them, share of the
divisor. Sums are taken from left to right, then from the top down, then through the planes, from -0: so they
have the bits of the same window in a stack. Filters see zeros outside the image.
"""

import numpy as np

from bslite.kernels.contracts.cuda.windows import (
    Depthwise,
    DepthwiseVariant,
    Pool,
    PoolVariant,
    WholePool,
    WholePoolVariant,
)
from bslite.kernels.cuda.math.functions import CODES, function_of
from bslite.kernels.cuda.math.libm import fma, larger, quotient, times
from bslite.kernels.cuda.moves.places import split
from bslite.kernels.cuda.runtime.device import cuda
from bslite.kernels.cuda.runtime.kernel import kernel

THREADS = 128

f = np.float32
u, u64, i64 = np.uint32, np.uint64, np.int64
EACH = 4  # partial results of each thread that shares a window over a whole image
SPAN = 3  # cells of a table's entry
ACTS = ("identity", CODES["identity"])


@kernel(
    Pool,
    threads=THREADS,
    registers=48,
    samples=[
        PoolVariant(largest, affine, activation, THREADS)
        for largest, affine, activation in ((0, 0, "identity"), (1, 1, "relu"), (0, 1, "silu"))
    ],
)
def pool(largest: int, affine: int, activation: str, threads: int):
    """Compute each window's maximum, or its sum over a divisor, then ``* scale + shift`` per channel and an
    activation, for ``count`` elements of y ``[images, planes, rows, cols, channels]``, one a thread.

    ``spans``: entries of planes, then of rows, then of cols. ``down, tall, wide``: elements of x between the
    planes, rows, columns of one window. Neighbouring threads have neighbouring channels, so a warp's loads
    are whole sectors; overlaps come from L1. 1,280 threads of 48 registers on an SM hide latency.
    """
    ends = activation not in ACTS
    act = function_of(activation)
    empty = f(-np.inf) if largest else f(-0.0)

    def pool(
        x, y, spans, scale, shift, count, channels, planes, rows, cols, x_image, x_plane, x_row, x_col,
        x_channel, y_image, y_plane, y_row, y_col, y_channel, down, tall, wide, a, b,
    ):  # fmt: skip
        i = u(u(cuda.blockIdx.x) * u(threads) + u(cuda.threadIdx.x))
        if i >= u(count):
            return
        rest, channel = split(i, channels)
        rest, col = split(rest, cols)
        rest, row = split(rest, rows)
        image, plane = split(rest, planes)
        p = u(SPAN) * plane
        r = u(SPAN) * u(u(planes) + row)
        c = u(SPAN) * u(u(planes) + u(u(rows) + col))
        first = i64(image) * x_image + i64(channel) * x_channel
        first += i64(spans[p]) * x_plane + i64(spans[r]) * x_row + i64(spans[c]) * x_col
        total = empty
        for d in range(spans[p + u(1)]):
            level = empty
            for t in range(spans[r + u(1)]):
                line = empty
                at = first + i64(d) * down + i64(t) * tall
                for _ in range(spans[c + u(1)]):
                    v = x[u64(at)]
                    line = larger(line, v) if largest else line + v
                    at += wide
                level = larger(level, line) if largest else level + line
            total = larger(total, level) if largest else total + level
        if not largest:
            share = i64(spans[p + u(2)]) * i64(spans[r + u(2)]) * i64(spans[c + u(2)])
            total = times(total, quotient(f(1.0), f(share)))
        if affine:
            total = fma(total, scale[channel], shift[channel])
        if ends:
            total = act(total, a, b)
        to = i64(image) * y_image + i64(plane) * y_plane + i64(row) * y_row + i64(col) * y_col
        y[u64(to + i64(channel) * y_channel)] = total

    return pool


@kernel(
    WholePool,
    threads=512,
    registers=88,
    samples=[
        WholePoolVariant(0, 0, "identity", lanes=32, sharing=8),
        WholePoolVariant(1, 1, "relu", lanes=8, sharing=64),
    ],
)
def whole_pool(largest: int, affine: int, activation: str, lanes: int, sharing: int):
    """Compute a `pool` with one window over all ``pixels`` of each image, which lie ``x_pixel`` apart. A
    block ``[lanes, sharing]`` takes ``lanes`` channels of one image, channels fastest.

    Thread g of a channel takes pixels g, g + sharing, ... in turn into EACH partial results, which are as
    many loads under way; then EACH and ``sharing`` are combined in order. Rows of ``lanes`` cells in shared
    memory: no two of a warp in one bank. The loop is unrolled to 16 loads under way, of 512 threads at 88
    registers: 32 KB on an SM.
    """
    ends = activation not in ACTS
    act = function_of(activation)
    empty = f(-np.inf) if largest else f(-0.0)
    cells = sharing * lanes

    def whole_pool(
        x, y, scale, shift, pixels, channels, groups, x_image, x_pixel, x_channel, y_image, y_channel, a, b
    ):
        shared = cuda.shared.array(cells, np.float32)
        lane = u(cuda.threadIdx.x)
        mine = u(cuda.threadIdx.y)
        image, group = split(u(cuda.blockIdx.x), groups)
        channel = u(u(group * u(lanes)) + lane)
        parts = cuda.local.array(EACH, np.float32)
        for e in range(EACH):
            parts[e] = empty
        if channel < u(channels):
            start = i64(image) * x_image + i64(channel) * x_channel
            for first in range(mine, pixels, sharing * EACH):
                for e in range(EACH):
                    pixel = i64(first) + e * sharing
                    v = x[u64(start + min(pixel, i64(pixels) - 1) * x_pixel)]  # no branch between loads
                    v = v if pixel < pixels else empty
                    parts[e] = larger(parts[e], v) if largest else parts[e] + v
        total = parts[0]
        for e in range(1, EACH):
            total = larger(total, parts[e]) if largest else total + parts[e]
        shared[u(mine * u(lanes)) + lane] = total
        cuda.syncthreads()
        if mine == u(0) and channel < u(channels):
            total = shared[lane]
            for g in range(1, sharing):
                v = shared[u(u(g) * u(lanes)) + lane]
                total = larger(total, v) if largest else total + v
            if not largest:
                total = times(total, quotient(f(1.0), f(pixels)))
            if affine:
                total = fma(total, scale[channel], shift[channel])
            if ends:
                total = act(total, a, b)
            y[u64(i64(image) * y_image + i64(channel) * y_channel)] = total

    return whole_pool


@kernel(
    Depthwise,
    threads=THREADS,
    registers=72,
    samples=[
        DepthwiseVariant(biased, activation, THREADS) for biased, activation in ((0, "identity"), (1, "silu"))
    ],
)
def depthwise(biased: int, activation: str, threads: int):
    """Filter each channel: ``y[.., k] = act(bias[k] + sum of w[t, r, s, k] * x[.., k // each])``, t, r, s in
    order, ``count`` elements of y ``[images, planes, rows, cols, channels]``, one a thread.

    By axis: ``taps``, the padding ``front, top, left``, ``stride``, the dilation ``apart``. Neighbouring
    threads have neighbouring channels of x and of w ``[taps, channels]``: whole sectors, both from L1 except
    for the first to read them. 896 threads of 72 registers fit an SM.
    """
    ends = activation not in ACTS
    act = function_of(activation)

    def depthwise(
        x, y, w, bias, count, channels, each, planes, rows, cols, in_planes, in_rows, in_cols, taps_planes,
        taps_rows, taps_cols, front, top, left, stride_planes, stride_rows, stride_cols, apart_planes,
        apart_rows, apart_cols, x_image, x_plane, x_row, x_col, x_channel, y_image, y_plane, y_row, y_col,
        y_channel, a, b,
    ):  # fmt: skip
        i = u(u(cuda.blockIdx.x) * u(threads) + u(cuda.threadIdx.x))
        if i >= u(count):
            return
        rest, channel = split(i, channels)
        rest, col = split(rest, cols)
        rest, row = split(rest, rows)
        image, plane = split(rest, planes)
        first = i64(image) * x_image + i64(u(channel // u(each))) * x_channel
        tap = u64(channel)
        acc = f(0.0)
        if biased:
            acc = bias[channel]
        for t in range(taps_planes):
            d = i64(plane) * stride_planes - front + i64(t) * apart_planes
            for r in range(taps_rows):
                h = i64(row) * stride_rows - top + i64(r) * apart_rows
                inside = 0 <= d < in_planes and 0 <= h < in_rows
                for s in range(taps_cols):
                    c = i64(col) * stride_cols - left + i64(s) * apart_cols
                    v = f(0.0)
                    if inside and 0 <= c < in_cols:
                        v = x[u64(first + d * x_plane + h * x_row + c * x_col)]
                    acc = fma(v, w[tap], acc)
                    tap = u64(tap + u64(channels))
        if ends:
            acc = act(acc, a, b)
        to = i64(image) * y_image + i64(plane) * y_plane + i64(row) * y_row + i64(col) * y_col
        y[u64(to + i64(channel) * y_channel)] = acc

    return depthwise
