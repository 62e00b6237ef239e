"""The functions of reductions: for each element, and for the partial results of two threads (see
`kernels.cuda.rows.reduce`).

A partial result is two numbers: float64 for float32 elements (sums lose nothing there that float32 could
show; a position is exact), int64 for integers.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bslite.kernels.cuda.runtime.device import device_function
from bslite.kernels.cuda.runtime.exchange import exp, log, root

LOWEST = -3.4e38  # the maximum of no elements: finite, so that differences are numbers
f = np.float32


class Reducer(NamedTuple):
    """The functions of a reduction. ``a, b``: a partial result; ``i``: an element's position; ``last``:
    whether the last of equal elements is wanted; ``k``: the divisor of a mean.
    """

    start: tuple[Any, Any]
    take: Callable[..., Any]  # (a, b, x, i, last) -> a, b
    merge: Callable[..., Any]  # (a, b, a', b', last) -> a, b
    finish: Callable[..., Any]  # (a, b, n, k) -> the result
    centre: bool = False  # whether the largest element of a thread is found first, as its `a`


def _sums(take: Callable[..., Any], finish: Callable[..., Any]) -> Reducer:
    return Reducer((0.0, 0.0), take, _merge_sums, finish)


def _merging(
    start: tuple[Any, Any],
    merge: Callable[..., Any],
    finish: Callable[..., Any],
    wide: Callable[..., Any] = np.float64,
) -> Reducer:
    """Return the reduction that merges each element and its position as a partial result of their own;
    ``wide`` makes an accumulator's number of an element.
    """

    @device_function
    def take(a, b, x, i, last):
        return merge(a, b, wide(x), np.float64(i), last)

    return Reducer(start, take, merge, finish)


@device_function
def _merge_sums(a, b, c, d, last):
    return a + c, b + d


@device_function
def _add(a, b, x, i, last):
    return a + np.float64(x), b


@device_function
def _add_square(a, b, x, i, last):
    return a + np.float64(x) * np.float64(x), b


@device_function
def _add_size(a, b, x, i, last):
    return a + np.float64(abs(x)), b


@device_function
def _add_both(a, b, x, i, last):
    wide = np.float64(x)
    return a + wide, b + wide * wide


@device_function
def _merge_products(a, b, c, d, last):
    return a * c, b


@device_function
def _merge_amax(a, b, c, d, last):
    return (a if a > c or a != a else c), b


@device_function
def _merge_amin(a, b, c, d, last):
    return (a if a < c or a != a else c), b


@device_function
def _merge_argmax(a, b, c, d, last):
    # b, d: positions, negative for a thread without elements; a NaN counts as the largest
    if d < 0.0:
        return a, b
    if b < 0.0:
        return c, d
    same = a == c or (a != a and c != c)
    better = c != c if a == a and c != c else (c > a and a == a)
    if same:
        better = (d > b) if last else (d < b)
    return (c, d) if better else (a, b)


@device_function
def _negative(x):
    return -np.float64(x)


@device_function
def _scaled(total, by):
    """Return ``total * exp(by)``; an infinite total stays so even where the exponential is zero."""
    return total * math.exp(by) if total - total == 0.0 else total


@device_function
def _add_exp(a, b, x, i, last):
    return a, b + np.float64(exp(f(x - f(a))))


@device_function
def _merge_exp(a, b, c, d, last):
    top = a if a > c else c
    return top, _scaled(b, a - top) + _scaled(d, c - top)


@device_function
def _first(a, b, n, k):
    return f(a)


@device_function
def _place(a, b, n, k):
    return np.int32(b)


@device_function
def _mean(a, b, n, k):
    return f(a / k)


@device_function
def _root(a, b, n, k):
    return f(root(a))


@device_function
def _log(a, b, n, k):
    return f(log(a))


@device_function
def _log_around(a, b, n, k):
    return f(log(b) + a)


@device_function
def _variance(a, b, n, k):
    squares = b - a * (a / n)
    if squares < 0.0:
        squares = 0.0
    return squares / k


@device_function
def _var(a, b, n, k):
    return f(_variance(a, b, n, k))


@device_function
def _std(a, b, n, k):
    return f(root(_variance(a, b, n, k)))


# -- integers: cells are int32, numbers int64 ---------------------------------------------------------------

FAR = 2**31 + 1  # a product beyond has left 32 bits, unless a zero comes; clamped, the next fits 64


@device_function
def _int_add(a, b, x, i, last):
    return a + np.int64(x), b


@device_function
def _int_hold(value):
    return min(max(value, np.int64(-FAR)), np.int64(FAR))


@device_function
def _int_merge_products(a, b, c, d, last):
    return _int_hold(a * c), b


@device_function
def _int_merge_amax(a, b, c, d, last):
    return max(a, c), b


@device_function
def _int_merge_amin(a, b, c, d, last):
    return min(a, c), b


@device_function
def _int_first(a, b, n, k):
    return a


REDUCERS = {
    "sum": _sums(_add, _first),
    "mean": _sums(_add, _mean),
    "sum_square": _sums(_add_square, _first),
    "l1_norm": _sums(_add_size, _first),
    "l2_norm": _sums(_add_square, _root),
    "log_sum": _sums(_add, _log),
    "var": _sums(_add_both, _var),
    "std": _sums(_add_both, _std),
    "prod": _merging((1.0, 0.0), _merge_products, _first),
    "amax": _merging((-math.inf, 0.0), _merge_amax, _first),
    "amin": _merging((math.inf, 0.0), _merge_amin, _first),
    "logsumexp": Reducer((LOWEST, 0.0), _add_exp, _merge_exp, _log_around, centre=True),
    "argmax": _merging((0.0, -1.0), _merge_argmax, _place),
    "argmin": _merging((0.0, -1.0), _merge_argmax, _place, _negative),
    "int_sum": Reducer((0, 0), _int_add, _merge_sums, _int_first),
    "int_prod": _merging((1, 0), _int_merge_products, _int_first, np.int64),
    "int_amax": _merging((-(2**31), 0), _int_merge_amax, _int_first, np.int64),
    "int_amin": _merging((2**31 - 1, 0), _int_merge_amin, _int_first, np.int64),
}
