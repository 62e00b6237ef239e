"""Running sums and products, in float64 or 64-bit integers as the reductions are."""

import numpy as np

from bslite.reference.reduce import as_, wide
from bslite.reference.registry import Array, reference


def along(function: np.ufunc, x: Array, axis: int, exclusive: bool, reverse: bool) -> Array:
    """``y_i = x_0 o x_1 o ... o x_i``, up to ``i - 1`` if exclusive; from the end if reverse."""
    x = np.moveaxis(x, axis, 0)
    x = x[::-1] if reverse else x
    y = as_(x, function.accumulate(wide(x), axis=0))
    if exclusive:
        first = np.full_like(y[:1], function.identity)
        y = np.concatenate([first, y[:-1]])
    return np.moveaxis(y[::-1] if reverse else y, 0, axis)


@reference("cumsum")
def cumsum(x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Array:
    """``y_i = sum_{j <= i} x_j``, ``j < i`` if exclusive; ``j >= i`` or ``j > i`` if reverse."""
    return along(np.add, x, axis, exclusive, reverse)


@reference("cumprod")
def cumprod(x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Array:
    """``y_i = prod_{j <= i} x_j``, ``j < i`` if exclusive; ``j >= i`` or ``j > i`` if reverse."""
    return along(np.multiply, x, axis, exclusive, reverse)


@reference("logcumsumexp")
def logcumsumexp(x: Array, *, axis: int) -> Array:
    """``y_i = log(sum_{j <= i} exp(x_j))``, term by term.

    ``log(exp(a) + exp(b))`` is ``m + log1p(exp(-|a - b|))`` with m the larger of a and b.
    """
    return np.asarray(np.logaddexp.accumulate(wide(x), axis=axis))
