"""The parts of each reduction: what it does per register and at the end; see `kernels.cpu.rows.reduce`.

Sums run in float64 lanes. Variance and logsumexp read their elements twice: ``centre`` is the reducer of the
first pass, whose result the second pass subtracts from each element.
"""

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
    centre: "Reducer | None" = None
    centre_row: Callable[..., Any] | None = None  # (scalar, n) -> the argument of `take`
    centre_lanes: Callable[..., Any] | None = None  # (accumulator, n) -> the argument of `take`


_zero = register_jitable(lambda: splat_wide(0.0))
_sum = register_jitable(lambda a, b: a + b)
#: Elements as terms of a sum.
_ITSELF = register_jitable(lambda acc, x, c: acc + widen(x))
_SIZE = register_jitable(lambda acc, x, c: acc + widen(vabs(x)))
_SQUARE = register_jitable(lambda acc, x, c: acc + widen(x) * widen(x))
_AWAY = register_jitable(lambda acc, x, c: acc + (widen(x) - c) * (widen(x) - c))
_EXP = register_jitable(lambda acc, x, c: acc + widen(vecmath.exp(x - c)))


def _end(row, lanes):
    """The ends of a reduction: of rows, and of lanes."""
    return register_jitable(row), register_jitable(lanes)


_PLAIN = _end(lambda value, k, c: f(value), lambda acc, k, c: narrow(acc))
_MEAN = _end(lambda value, k, c: f(value / k), lambda acc, k, c: narrow(acc * splat_wide(1.0 / k)))
_ROOT = _end(lambda value, k, c: f(math.sqrt(value)), lambda acc, k, c: narrow(root_wide(acc)))
_ROOT_MEAN = _end(
    lambda value, k, c: f(math.sqrt(value / k)),
    lambda acc, k, c: narrow(root_wide(acc * splat_wide(1.0 / k))),
)
_LOG = _end(lambda value, k, c: f(np.log(value)), lambda acc, k, c: veclog.log(narrow(acc)))
_LOG_AROUND = _end(
    lambda value, k, c: f(np.log(value) + np.float64(hmax(c))), lambda acc, k, c: veclog.log(narrow(acc)) + c
)


@register_jitable
def _most(most):
    # an infinite maximum is no centre: infinity minus infinity is NaN
    return select_lt(vabs(most), splat(_INF), most, splat(f(0.0)))


_LARGEST = Reducer(
    register_jitable(lambda: splat(-_INF)), register_jitable(lambda acc, x, c: vmax_nan(acc, x)), vmax_nan,
    first_of, hmax, *_end(lambda value, k, c: f(value), lambda acc, k, c: acc),
)  # fmt: skip
_SMALLEST = _LARGEST._replace(
    take=register_jitable(lambda acc, x, c: vmax_nan(acc, negated(x))),
    row=register_jitable(lambda value, k, c: -f(value)),
    lanes=register_jitable(lambda acc, k, c: negated(acc)),
)


def _of_sums(take, end, centre=None, centre_row=None, centre_lanes=None) -> Reducer:
    return Reducer(_zero, take, _sum, first_wide, sum_across, *end, centre, centre_row, centre_lanes)


_SUM = _of_sums(_ITSELF, _PLAIN)
_AROUND_MEAN = _SUM, *_end(lambda value, n: splat_wide(value / n), lambda acc, n: acc * splat_wide(1.0 / n))
_BELOW_MOST = _LARGEST, *_end(lambda value, n: _most(splat(value)), lambda acc, n: _most(acc))

REDUCERS = {
    "sum": _SUM,
    "mean": _of_sums(_ITSELF, _MEAN),
    "sum_square": _of_sums(_SQUARE, _PLAIN),
    "l1_norm": _of_sums(_SIZE, _PLAIN),
    "l2_norm": _of_sums(_SQUARE, _ROOT),
    "log_sum": _of_sums(_ITSELF, _LOG),
    "prod": _SUM._replace(
        start=register_jitable(lambda: splat_wide(1.0)),
        take=register_jitable(lambda acc, x, c: acc * widen(x)),
        merge=register_jitable(lambda a, b: a * b),
        across=product_across,
    ),
    "amax": _LARGEST,
    "amin": _SMALLEST,
    "var": _of_sums(_AWAY, _MEAN, *_AROUND_MEAN),
    "std": _of_sums(_AWAY, _ROOT_MEAN, *_AROUND_MEAN),
    "logsumexp": _of_sums(_EXP, _LOG_AROUND, *_BELOW_MOST),
}
