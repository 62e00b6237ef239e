"""Pooling, straight from the list of windows."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from bslite.reference.conv import Sizes, inner
from bslite.reference.registry import Array, reference


def window_starts(
    size: int, kernel: int, stride: int, before: int, after: int, dilation: int, ceil_mode: bool
) -> Array:
    """First input index of each window along an axis; negative in the padding before it.

    A window counts if it fits into the padded axis; with ``ceil_mode`` also if the one before it left padded
    elements unread. Either way it has to start before the input ends.
    """
    extent, end = dilation * (kernel - 1) + 1, size + after
    starts = range(-before, size, stride)
    if ceil_mode:
        return np.array([s for s in starts if s + extent <= end or s - stride + extent < end], int)
    return np.array([s for s in starts if s + extent <= end], int)


def taps(x: Array, starts: Sequence[Array], kernel: Sizes, dilation: Sizes, fill: float) -> Iterator[Array]:
    """For each element of the kernel ``[N, C, P, Q]``, what it sees in every window.

    Windows start at ``starts``, rows ``[P]`` and columns ``[Q]``; outside the input they see ``fill``.
    """
    for place in product(*map(range, kernel)):
        seen = np.ix_(*(s + i * d for s, i, d in zip(starts, place, dilation, strict=True)))
        axes = list(zip(seen, x.shape[2:], strict=True))
        inside = reduce(np.logical_and, [(i >= 0) & (i < h) for i, h in axes])  # [P, Q]
        picked = x[inner(i.clip(0, h - 1) for i, h in axes)]
        yield np.where(inside, picked, x.dtype.type(fill))


def all_starts(
    x: Array, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> list[Array]:
    """`window_starts` of every axis."""
    axes = len(kernel)
    sides = padding[:axes], padding[axes:]
    return [
        window_starts(h, r, s, p, q, d, ceil_mode)
        for h, r, s, p, q, d in zip(x.shape[2:], kernel, stride, *sides, dilation, strict=True)
    ]


@reference("max_pool1d", "max_pool2d", "max_pool3d")
def max_pool(
    x: Array, *, kernel: Sizes, stride: Sizes | None, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> Array:
    """``y[n,c,p,q] = max_{r,s} x[n,c,p*sh + r*dh - top,q*sw + s*dw - left]``, elements outside x left out.

    x ``[N, C, H, W]`` -> ``[N, C, P, Q]``; NaN is the largest number. The same along one axis or three.
    """
    starts = all_starts(x, kernel, stride or kernel, padding, dilation, ceil_mode)
    return reduce(np.maximum, taps(x, starts, kernel, dilation, -np.inf))


@reference("max_pool_places")
def max_pool_places(
    x: Array, *, kernel: Sizes, stride: Sizes, before: Sizes, dilation: Sizes, windows: Sizes
) -> Array:
    """The number of the first tap that sees the largest element inside x, NaN being the largest.

    x ``[N, C, ...]`` -> ``[N, C, windows]``, of uint8 where that holds the numbers.
    """
    starts = [np.arange(m) * s - b for m, s, b in zip(windows, stride, before, strict=True)]
    best = np.full((*x.shape[:2], *windows), -np.inf, x.dtype)
    found = np.full(best.shape, -1)
    inside = taps(np.ones_like(x), starts, kernel, dilation, 0.0)
    for tap, (seen, there) in enumerate(zip(taps(x, starts, kernel, dilation, 0.0), inside, strict=True)):
        more = (there > 0) & ((found < 0) | (~(seen <= best) & ~np.isnan(best)))
        best, found = np.where(more, seen, best), np.where(more, tap, found)
    return found.clip(0).astype(np.uint8 if math.prod(kernel) <= 256 else np.int64)


@reference("pool_grad")
def pool_grad(
    g: Array,
    places: Array | None = None,
    *,
    kernel: Sizes,
    stride: Sizes,
    before: Sizes,
    dilation: Sizes,
    size: Sizes,
) -> Array:
    """``y[i] = sum of g[w]`` over taps k and windows w with ``i = w * stride - before + k * dilation``.

    g ``[N, C, windows]`` -> ``[N, C, size]``. With ``places``, of those windows only whose place is k.
    """
    y = np.zeros((*g.shape[:2], *size), g.dtype)
    for tap, place in enumerate(product(*map(range, kernel))):
        share = g if places is None else np.where(places == tap, g, 0)
        for w in np.ndindex(g.shape[2:]):
            axes = zip(w, stride, before, place, dilation, strict=True)
            at = tuple(i * s - b + k * d for i, s, b, k, d in axes)
            if all(0 <= i < h for i, h in zip(at, size, strict=True)):
                y[inner(at)] += share[inner(w)]
    return y


@reference("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    x: Array,
    *,
    kernel: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Array:
    """``y[n,c,p,q] = sum_{r,s} x[n,c,p*sh + r*dh - top,q*sw + s*dw - left] / divisor[p,q]``, 0 outside x.

    x ``[N, C, H, W]`` -> ``[N, C, P, Q]``. The divisor is the number of the window's elements inside x, or
    inside x and its padding with ``count_include_pad``: what ``ceil_mode`` adds beyond is never counted. The
    same along one axis or three.
    """
    starts = all_starts(x, kernel, stride or kernel, padding, dilation, ceil_mode)
    total = reduce(np.add, taps(x, starts, kernel, dilation, 0.0))
    if divisor_override is not None:
        return total / divisor_override
    if not count_include_pad:
        padding = (0,) * len(padding)
    before, after = padding[: len(kernel)], padding[len(kernel) :]
    counted = [  # elements counted per window, along each axis
        sum((s + i * d >= -p) & (s + i * d < h + q) for i in range(r))
        for s, r, d, h, p, q in zip(starts, kernel, dilation, x.shape[2:], before, after, strict=True)
    ]
    return total / reduce(np.multiply, np.ix_(*counted)).astype(x.dtype)


def adaptive_windows(size: int, count: int) -> list[slice]:
    """``count`` windows that cover ``size`` elements, overlapping where the division is uneven."""
    return [slice(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _adaptive(function: Callable[..., Any], x: Array, output_size: tuple[int | None, ...]) -> Array:
    """``function`` of every window."""
    y = np.empty((*x.shape[:2], *(s or h for s, h in zip(output_size, x.shape[2:], strict=True))), x.dtype)
    cuts = [adaptive_windows(h, size) for h, size in zip(x.shape[2:], y.shape[2:], strict=True)]
    for place in np.ndindex(y.shape[2:]):
        seen = x[inner(c[i] for c, i in zip(cuts, place, strict=True))]
        y[inner(place)] = function(seen, tuple(range(2, x.ndim)))
    return y


@reference("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def adaptive_avg_pool(x: Array, *, output_size: tuple[int | None, ...]) -> Array:
    """``y[n,c,p,q]`` = mean of ``x[n,c,h,w]`` over ``floor(pH/P) <= h < ceil((p+1)H/P)``, likewise w.

    x ``[N, C, H, W]`` -> ``[N, C, P, Q]``; a size of None is the input's. 1 is global average pooling. The
    same along one axis or three.
    """
    return _adaptive(np.mean, x, output_size)


@reference("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(x: Array, *, output_size: tuple[int | None, ...]) -> Array:
    """As `adaptive_avg_pool`, the largest element in place of the mean; NaN is the largest number."""
    return _adaptive(np.max, x, output_size)
