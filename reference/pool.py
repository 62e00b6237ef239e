"""Pooling, straight from the list of windows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np

from bslite.reference.registry import Array, reference

Pair = tuple[int, int]
Quad = tuple[int, int, int, int]


def window_starts(
    size: int, kernel: int, stride: int, before: int, after: int, dilation: int, ceil_mode: bool
) -> Array:
    """First input index of each window along an axis; negative in the padding before it.

    A window counts if it fits into the padded axis; with ``ceil_mode`` also if the one before it left
    padded elements unread. Either way it has to start before the input ends.
    """
    extent, end = dilation * (kernel - 1) + 1, size + after
    starts = range(-before, size, stride)
    if ceil_mode:
        return np.array([s for s in starts if s + extent <= end or s - stride + extent < end], int)
    return np.array([s for s in starts if s + extent <= end], int)


def taps(x: Array, rows: Array, columns: Array, kernel: Pair, dilation: Pair, fill: float) -> Iterator[Array]:
    """For each element of the kernel ``[N, C, P, Q]``, what it sees in every window.

    Windows start at ``rows [P]`` and ``columns [Q]``; outside the input they see ``fill``.
    """
    h, w = x.shape[2:]
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            r, s = rows + i * dilation[0], columns + j * dilation[1]
            inside = ((r >= 0) & (r < h))[:, None] & ((s >= 0) & (s < w))  # [P, Q]
            picked = x[:, :, r.clip(0, h - 1)[:, None], s.clip(0, w - 1)]
            yield np.where(inside, picked, x.dtype.type(fill))


@reference("max_pool2d")
def max_pool2d(
    x: Array, *, kernel: Pair, stride: Pair | None, padding: Quad, dilation: Pair, ceil_mode: bool
) -> Array:
    """``y[n,c,p,q] = max_{r,s} x[n,c,p*sh + r*dh - top,q*sw + s*dw - left]``, elements outside x left out.

    x ``[N, C, H, W]`` -> ``[N, C, P, Q]``; NaN is the largest number.
    """
    (sh, sw), (dh, dw), (top, left, bottom, right) = stride or kernel, dilation, padding
    rows = window_starts(x.shape[2], kernel[0], sh, top, bottom, dh, ceil_mode)
    columns = window_starts(x.shape[3], kernel[1], sw, left, right, dw, ceil_mode)
    return reduce(np.maximum, taps(x, rows, columns, kernel, dilation, -np.inf))


@reference("avg_pool2d")
def avg_pool2d(
    x: Array,
    *,
    kernel: Pair,
    stride: Pair | None,
    padding: Quad,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Array:
    """``y[n,c,p,q] = sum_{r,s} x[n,c,p*sh + r - top,q*sw + s - left] / divisor[p,q]``, zeros outside x.

    x ``[N, C, H, W]`` -> ``[N, C, P, Q]``. The divisor is the number of the window's elements inside x, or
    inside x and its padding with ``count_include_pad``: what ``ceil_mode`` adds beyond is never counted.
    """
    (sh, sw), (top, left, bottom, right) = stride or kernel, padding
    h, w = x.shape[2:]
    rows = window_starts(h, kernel[0], sh, top, bottom, 1, ceil_mode)
    columns = window_starts(w, kernel[1], sw, left, right, 1, ceil_mode)
    total = reduce(np.add, taps(x, rows, columns, kernel, (1, 1), 0.0))
    if divisor_override is not None:
        return total / divisor_override
    if not count_include_pad:
        top = left = bottom = right = 0
    tall = np.minimum(rows + kernel[0], h + bottom) - np.maximum(
        rows, -top
    )  # [P], elements counted per window
    wide = np.minimum(columns + kernel[1], w + right) - np.maximum(columns, -left)  # [Q]
    return total / np.outer(tall, wide).astype(x.dtype)


def adaptive_windows(size: int, count: int) -> list[slice]:
    """``count`` windows that cover ``size`` elements, overlapping where the division is uneven."""
    return [slice(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


@reference("adaptive_avg_pool2d")
def adaptive_avg_pool2d(x: Array, *, output_size: tuple[int | None, int | None]) -> Array:
    """``y[n,c,p,q]`` = mean of ``x[n,c,h,w]`` over ``floor(pH/P) <= h < ceil((p+1)H/P)``, likewise w.

    x ``[N, C, H, W]`` -> ``[N, C, P, Q]``; a size of None is the input's. 1 is global average pooling.
    """
    h, w = x.shape[2:]
    rows = adaptive_windows(h, output_size[0] or h)
    columns = adaptive_windows(w, output_size[1] or w)
    return np.stack([np.stack([x[:, :, r, s].mean((2, 3)) for s in columns], -1) for r in rows], -2)


@reference("adaptive_max_pool2d")
def adaptive_max_pool2d(x: Array, *, output_size: tuple[int | None, int | None]) -> Array:
    """As `adaptive_avg_pool2d`, the largest element in place of the mean; NaN is the largest number."""
    h, w = x.shape[2:]
    rows = adaptive_windows(h, output_size[0] or h)
    columns = adaptive_windows(w, output_size[1] or w)
    return np.stack([np.stack([x[:, :, r, s].max((2, 3)) for s in columns], -1) for r in rows], -2)
