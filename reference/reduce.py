"""Reductions, by NumPy's own. NaN in, NaN out.

They compute in float64 in any case, and the executor rounds: the error of a float32 sum that makes a single
number varies too much to be a measure for engines.
"""

import numpy as np

from bslite.errors import InputError
from bslite.reference.registry import Array, reference

Axes = tuple[int, ...]


def _over(axes: Axes) -> Axes | None:
    return axes or None


def wide(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.kind == "f" else x.astype(np.int64)


def as_(x: Array, made: Array) -> Array:
    """Integers made of ``x`` in its dtype, InputError where they do not fit; floats as they are."""
    if x.dtype.kind == "f":
        return np.asarray(made)
    edge = np.iinfo(x.dtype)
    wrong = (made < edge.min) | (made > edge.max)
    if np.any(wrong):
        raise InputError(f"the result {np.asarray(made)[wrong].flat[0]} does not fit {x.dtype}")
    return np.asarray(made, x.dtype)


@reference("sum")
def sum_(x: Array, *, axes: Axes, keepdim: bool) -> Array:
    """``sum_i x_i``."""
    return as_(x, np.sum(wide(x), axis=_over(axes), keepdims=keepdim))


@reference("mean")
def mean(x: Array, *, axes: Axes, keepdim: bool) -> Array:
    """``sum_i x_i / n``."""
    return np.asarray(np.mean(wide(x), axis=_over(axes), keepdims=keepdim))


@reference("prod")
def prod(x: Array, *, axes: Axes, keepdim: bool) -> Array:
    """``prod_i x_i``."""
    return as_(x, np.prod(wide(x), axis=_over(axes), keepdims=keepdim))


@reference("amax")
def amax(x: Array, *, axes: Axes, keepdim: bool) -> Array:
    """``max_i x_i``."""
    return np.asarray(np.max(x, axis=_over(axes), keepdims=keepdim))


@reference("amin")
def amin(x: Array, *, axes: Axes, keepdim: bool) -> Array:
    """``min_i x_i``."""
    return np.asarray(np.min(x, axis=_over(axes), keepdims=keepdim))


@reference("sum_square")
def sum_square(x: Array, *, axes: Axes, keepdim: bool) -> Array:
    """``sum_i x_i**2``."""
    return np.asarray(np.sum(np.square(wide(x)), axis=_over(axes), keepdims=keepdim))


@reference("l1_norm")
def l1_norm(x: Array, *, axes: Axes, keepdim: bool) -> Array:
    """``sum_i |x_i|``."""
    return np.asarray(np.sum(np.abs(wide(x)), axis=_over(axes), keepdims=keepdim))


@reference("l2_norm")
def l2_norm(x: Array, *, axes: Axes, keepdim: bool) -> Array:
    """``sqrt(sum_i x_i**2)``."""
    return np.asarray(np.sqrt(sum_square(x, axes=axes, keepdim=keepdim)))


@reference("log_sum")
def log_sum(x: Array, *, axes: Axes, keepdim: bool) -> Array:
    """``log(sum_i x_i)``."""
    return np.asarray(np.log(sum_(x, axes=axes, keepdim=keepdim)))


@reference("logsumexp")
def logsumexp(x: Array, *, axes: Axes, keepdim: bool) -> Array:
    """``log(sum_i exp(x_i))`` as ``m + log(sum_i exp(x_i - m))``, m the largest, or 0 if that is infinite."""
    most = np.max(x, axis=_over(axes), keepdims=True)
    most = np.where(np.isinf(most), 0, most).astype(np.float64)
    total = np.log(np.sum(np.exp(wide(x) - most), axis=_over(axes), keepdims=True)) + most
    return np.asarray(total if keepdim else np.squeeze(total, axis=_over(axes)))


@reference("var")
def var(x: Array, *, axes: Axes, keepdim: bool, correction: float) -> Array:
    """``sum_i (x_i - mean)**2 / max(n - correction, 0)``."""
    away = x - np.mean(wide(x), axis=_over(axes), keepdims=True)
    squares = np.sum(np.square(away), axis=_over(axes), keepdims=keepdim)
    count = x.size // max(1, squares.size)
    return np.asarray(squares / np.float64(max(count - correction, 0)))


@reference("std")
def std(x: Array, *, axes: Axes, keepdim: bool, correction: float) -> Array:
    """``sqrt(var)``."""
    return np.asarray(np.sqrt(var(x, axes=axes, keepdim=keepdim, correction=correction)))


@reference("argmax")
def argmax(x: Array, *, axis: int | None, keepdim: bool, last: bool) -> Array:
    """The first index, or the last, at which the largest stands; that of a NaN if there is one."""
    if not last:
        return np.asarray(np.argmax(x, axis=axis, keepdims=keepdim), np.int64)
    flipped = np.flip(x, axis)
    size = x.size if axis is None else x.shape[axis]
    return np.asarray(size - 1 - np.argmax(flipped, axis=axis, keepdims=keepdim), np.int64)


@reference("argmin")
def argmin(x: Array, *, axis: int | None, keepdim: bool, last: bool) -> Array:
    """The first index, or the last, at which the smallest stands; that of a NaN if there is one."""
    return argmax(-x, axis=axis, keepdim=keepdim, last=last)
