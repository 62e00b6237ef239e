"""Rows of a table by index, and weighted sums of a few rows."""

from __future__ import annotations

import numpy as np

from bslite.kernels.contracts.cuda.moves import BlockVariant
from bslite.kernels.contracts.cuda.places import Gather, GatherPairs
from bslite.kernels.cuda.rows.rows import THREADS
from bslite.kernels.cuda.runtime.device import cuda
from bslite.kernels.cuda.runtime.flag import raise_flag
from bslite.kernels.cuda.runtime.kernel import kernel

EACH = 4  # elements of a thread


def _gathering(threads: int):
    def gather(x, indices, y, flag, total, size, inner, count):
        start = cuda.blockIdx.x * np.int64(threads * EACH) + cuda.threadIdx.x
        for e in range(EACH):
            at = start + e * threads
            if at < total:
                row, c = at // inner, at % inner
                outer = row // count
                index = indices[np.uint64(row % count)]
                wanted = index + size if index < 0 else index
                if wanted < 0 or wanted >= size:
                    raise_flag(flag, np.int64(index))
                    wanted = 0
                y[np.uint64(at)] = x[np.uint64((outer * size + wanted) * inner + c)]

    return gather


@kernel(
    Gather,
    threads=THREADS,
    registers=64,
    samples=[BlockVariant(threads=256)],
)
def gather(threads: int):
    """Dense: ``y[o, i, c] = x[o, indices[i], c]`` of ``total`` cells, x ``[o, size, inner]``, ``count``
    indices; one from the end if negative, row 0 and a flag if out of range.

    Neighbouring threads copy neighbours of a row; an index is read by all of its row's threads, from L1.
    """
    return _gathering(threads)


@kernel(
    GatherPairs,
    threads=THREADS,
    registers=64,
    samples=[BlockVariant(threads=256)],
)
def gather_pairs(threads: int):
    """As `gather`, two cells at a time: ``total`` and ``inner`` count pairs. 8-byte accesses."""
    return _gathering(threads)


@kernel(
    "x f4[], y f4[], lines i4[], weights f4[], total i8, size i8, out i8, inner i8, taps i4",
    threads=THREADS,
    registers=64,
    samples=[{"threads": 256, "moves": 0}, {"threads": 256, "moves": 1}],
)
def resample(threads: int, moves: int):
    """Dense: ``y[o, i, c] = sum over taps t of weights[i, t] * x[o, lines[i, t], c]``, in order, of ``total``
    elements, x ``[o, size, inner]``, y ``[o, out, inner]``. ``moves``: of one tap of weight 1, a copy.

    Neighbouring threads make neighbours of a line; tables are a few KB, from L1.
    """

    def resample(x, y, lines, weights, total, size, out, inner, taps):
        start = cuda.blockIdx.x * np.int64(threads * EACH) + cuda.threadIdx.x
        for e in range(EACH):
            at = start + e * threads
            if at < total:
                line, c = at // inner, at % inner
                base = line // out * size
                i = line % out * taps
                value = x[np.uint64((base + lines[np.uint64(i)]) * inner + c)]
                if not moves:
                    # a weight of zero still multiplies: an infinite element makes NaN, as in torch
                    value = weights[np.uint64(i)] * value
                    for t in range(1, taps):
                        element = x[np.uint64((base + lines[np.uint64(i + t)]) * inner + c)]
                        value = weights[np.uint64(i + t)] * element + value
                y[np.uint64(at)] = value

    return resample


@kernel(
    "x f4[], y f4[], rows i4[], cols i4[], row_parts f4[], col_parts f4[], total i8, channels i4, "
    "lines i4, pixels i4, x_image i8, x_line i8, x_pixel i8, y_image i8, y_line i8, y_pixel i8",
    threads=THREADS,
    registers=64,
    samples=[{"threads": 256, "bilinear": 0}, {"threads": 256, "bilinear": 1}],
)
def upsample(threads: int, bilinear: int):
    """Images of ``total`` elements, channels innermost: each the nearest pixel, at row ``rows[2i]`` and
    column ``cols[2j]``; or ``bilinear``, between that and the one at ``[2i + 1]``, by the parts of both.

    Neighbouring threads make neighbouring channels: whole sectors where there are eight. An input pixel is
    read again by the output pixels near it, from L1 or L2.
    """

    def upsample(
        x, y, rows, cols, row_parts, col_parts, total, channels, lines, pixels, x_image, x_line, x_pixel,
        y_image, y_line, y_pixel,
    ):  # fmt: skip
        start = cuda.blockIdx.x * np.int64(threads * EACH) + cuda.threadIdx.x
        for e in range(EACH):
            at = start + e * threads
            if at < total:
                pixel, c = at // channels, at % channels
                line, j = pixel // pixels, pixel % pixels
                image, i = line // lines, line % lines
                base = image * x_image + c
                top = base + rows[np.uint64(2 * i)] * x_line
                left = cols[np.uint64(2 * j)] * x_pixel
                value = x[np.uint64(top + left)]
                if bilinear:
                    bottom = base + rows[np.uint64(2 * i + 1)] * x_line
                    right = cols[np.uint64(2 * j + 1)] * x_pixel
                    of_top, of_bottom = row_parts[np.uint64(2 * i)], row_parts[np.uint64(2 * i + 1)]
                    of_left, of_right = col_parts[np.uint64(2 * j)], col_parts[np.uint64(2 * j + 1)]
                    # a weight of zero still multiplies: an infinite pixel makes NaN, as in torch
                    a = of_bottom * x[np.uint64(bottom + left)] + of_top * value
                    b = of_top * x[np.uint64(top + right)]
                    b = of_bottom * x[np.uint64(bottom + right)] + b
                    value = of_right * b + of_left * a
                y[np.uint64(image * y_image + i * y_line + j * y_pixel + c)] = value

    return upsample
