"""Reductions, by NumPy's own. NaN in, NaN out.

They compute in float64 in any case, and the executor rounds: the error of a float32 sum that makes a single
number varies too much to be a measure for engines.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from bslite.reference.registry import Array, in_dtype, reference

Axes = tuple[int, ...]


def _over(axes: Axes) -> Axes | None:
    return axes or None


def wide(x: Array) -> Array:
    return x.astype(np.float64) if x.dtype.kind == "f" else x.astype(np.int64)


def as_(x: Array, made: Array) -> Array:
    """Integers made of ``x`` in its dtype, InputError where they do not fit; floats as they are."""
    return np.asarray(made) if x.dtype.kind == "f" else in_dtype(x.dtype, made)


EXTREMES = ("amax", "amin")
#: op -> what it makes of all elements along ``axis``
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, **over: as_(x, np.sum(wide(x), **over)),
    "mean": lambda x, **over: np.mean(wide(x), **over),
    "prod": lambda x, **over: as_(x, np.prod(wide(x), **over)),
    "amax": np.max,
    "amin": np.min,
    "sum_square": lambda x, **over: np.sum(np.square(wide(x)), **over),
    "l1_norm": lambda x, **over: np.sum(np.abs(wide(x)), **over),
    "l2_norm": lambda x, **over: np.sqrt(np.sum(np.square(wide(x)), **over)),
    "log_sum": lambda x, **over: np.log(np.sum(wide(x), **over)),
}


def _reduced(op: str, x: Array, *, axes: Axes, keepdim: bool) -> Array:
    return np.asarray(REDUCTIONS[op](x, axis=_over(axes), keepdims=keepdim))


def _extreme(op: str, x: Array, *, axes: Axes, keepdim: bool, first: bool) -> Array:
    """``first`` is about the gradient."""
    return _reduced(op, x, axes=axes, keepdim=keepdim)


for _name in REDUCTIONS:
    reference(_name)(functools.partial(_extreme if _name in EXTREMES else _reduced, _name))


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
