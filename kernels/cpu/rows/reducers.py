"""The parts of each reduction: what it does per register and at the end; see `kernels.cpu.rows.reduce`.

Sums run in float64 lanes. Variance and logsumexp read their elements twice: ``centre`` is the reducer of the
first pass, whose result the second pass subtracts from each element.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from bslite.kernels.cpu.math import veclog, vecmath
from bslite.kernels.cpu.vector.across import hmax
from bslite.kernels.cpu.vector.lanes import negated
from bslite.kernels.cpu.vector.simd import select_lt, splat, vabs, vmax_nan
from bslite.kernels.cpu.vector.wide import (
    first_of,
    first_wide,
    narrow,
    product_across,
    root_wide,
    splat_wide,
    sum_across,
    widen,
)

f = np.float32
_INF = f(math.inf)


class Reducer(NamedTuple):
    """The functions of a reduction; ``n`` is the count, ``k`` the divisor of the mean, both float64."""

    start: Callable[[], Any]  # -> accumulator
    take: Callable[..., Any]  # (accumulator, register, centre) -> accumulator
    merge: Callable[..., Any]  # (accumulator, accumulator) -> accumulator
    keep: Callable[..., Any]  # (new, old, count) -> the first lanes of new
    across: Callable[..., Any]  # accumulator -> scalar
    row: Callable[..., Any]  # (scalar, k, centre's scalar) -> float32
    lanes: Callable[..., Any]  # (accumulator, k, centre) -> register
    centre: Reducer | None = None
    centre_row: Callable[..., Any] | None = None  # (scalar, n) -> the argument of `take`
    centre_lanes: Callable[..., Any] | None = None  # (accumulator, n) -> the argument of `take`


@register_jitable
def _zero():
    return splat_wide(0.0)


@register_jitable
def _one():
    return splat_wide(1.0)


@register_jitable
def _lowest():
    return splat(-_INF)


@register_jitable
def _add(acc, x, c):
    return acc + widen(x)


@register_jitable
def _add_square(acc, x, c):
    wide = widen(x)
    return acc + wide * wide


@register_jitable
def _add_size(acc, x, c):
    return acc + widen(vabs(x))


@register_jitable
def _multiply(acc, x, c):
    return acc * widen(x)


@register_jitable
def _larger(acc, x, c):
    return vmax_nan(acc, x)


@register_jitable
def _larger_of_negated(acc, x, c):
    return vmax_nan(acc, negated(x))


@register_jitable
def _add_away(acc, x, c):
    away = widen(x) - c
    return acc + away * away


@register_jitable
def _add_exp(acc, x, c):
    return acc + widen(vecmath.exp(x - c))


@register_jitable
def _sum(a, b):
    return a + b


@register_jitable
def _product(a, b):
    return a * b


@register_jitable
def _row(value, k, c):
    return f(value)


@register_jitable
def _row_negated(value, k, c):
    return -f(value)


@register_jitable
def _row_mean(value, k, c):
    return f(value / k)


@register_jitable
def _row_root(value, k, c):
    return f(math.sqrt(value))


@register_jitable
def _row_root_mean(value, k, c):
    return f(math.sqrt(value / k))


@register_jitable
def _row_log(value, k, c):
    return f(np.log(value))


@register_jitable
def _lanes(acc, k, c):
    return narrow(acc)


@register_jitable
def _lanes_as_they_are(acc, k, c):
    return acc


@register_jitable
def _lanes_negated(acc, k, c):
    return negated(acc)


@register_jitable
def _lanes_mean(acc, k, c):
    return narrow(acc * splat_wide(1.0 / k))


@register_jitable
def _lanes_root(acc, k, c):
    return narrow(root_wide(acc))


@register_jitable
def _lanes_root_mean(acc, k, c):
    return narrow(root_wide(acc * splat_wide(1.0 / k)))


@register_jitable
def _lanes_log(acc, k, c):
    return veclog.log(narrow(acc))


@register_jitable
def _mean_of_row(value, n):
    return splat_wide(value / n)


@register_jitable
def _mean_of_lanes(acc, n):
    return acc * splat_wide(1.0 / n)


@register_jitable
def _most(most):
    # an infinite maximum is no centre: infinity minus infinity is NaN
    return select_lt(vabs(most), splat(_INF), most, splat(f(0.0)))


@register_jitable
def _most_of_row(value, n):
    return _most(splat(value))


@register_jitable
def _most_of_lanes(acc, n):
    return _most(acc)


@register_jitable
def _row_log_around(value, k, c):
    return f(np.log(value) + np.float64(hmax(c)))


@register_jitable
def _lanes_log_around(acc, k, c):
    return veclog.log(narrow(acc)) + c


def _of_sums(take, row, lanes) -> Reducer:
    return Reducer(_zero, take, _sum, first_wide, sum_across, row, lanes)


_LARGEST = Reducer(_lowest, _larger, vmax_nan, first_of, hmax, _row, _lanes_as_they_are)
_SUM = _of_sums(_add, _row, _lanes)


def _around_mean(row, lanes) -> Reducer:
    return _of_sums(_add_away, row, lanes)._replace(
        centre=_SUM, centre_row=_mean_of_row, centre_lanes=_mean_of_lanes
    )


REDUCERS = {
    "sum": _SUM,
    "mean": _of_sums(_add, _row_mean, _lanes_mean),
    "sum_square": _of_sums(_add_square, _row, _lanes),
    "l1_norm": _of_sums(_add_size, _row, _lanes),
    "l2_norm": _of_sums(_add_square, _row_root, _lanes_root),
    "log_sum": _of_sums(_add, _row_log, _lanes_log),
    "prod": Reducer(_one, _multiply, _product, first_wide, product_across, _row, _lanes),
    "amax": _LARGEST,
    "amin": _LARGEST._replace(take=_larger_of_negated, row=_row_negated, lanes=_lanes_negated),
    "var": _around_mean(_row_mean, _lanes_mean),
    "std": _around_mean(_row_root_mean, _lanes_root_mean),
    "logsumexp": _of_sums(_add_exp, _row_log_around, _lanes_log_around)._replace(
        centre=_LARGEST, centre_row=_most_of_row, centre_lanes=_most_of_lanes
    ),
}
