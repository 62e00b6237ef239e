"""Ops that move elements; each is one NumPy call."""

import math

import numpy as np

from bslite.reference.registry import Array, reference


@reference("concat")
def concat(*xs: Array, axis: int) -> Array:
    """The inputs side by side along ``axis``."""
    return np.concatenate(xs, axis)


@reference("flatten")
def flatten(x: Array, *, start_axis: int, end_axis: int) -> Array:
    """The axes ``start_axis`` to ``end_axis``, both included, made one, row-major."""
    start, stop = start_axis % x.ndim, end_axis % x.ndim + 1
    return x.reshape(*x.shape[:start], math.prod(x.shape[start:stop]), *x.shape[stop:])


@reference("reshape")
def reshape(x: Array, *, shape: tuple[int, ...]) -> Array:
    """Row-major reshape; 0 copies the input's size at that position (ONNX ``Reshape``, allowzero=0)."""
    return x.reshape([x.shape[i] if d == 0 else d for i, d in enumerate(shape)])


@reference("permute")
def permute(x: Array, *, order: tuple[int, ...]) -> Array:
    """``y[i_order[0], i_order[1], ...] = x[i_0, i_1, ...]``."""
    return x.transpose(order)


@reference("slice")
def slice_(x: Array, *, axis: int, start: int, stop: int | None, step: int) -> Array:
    """``x[start:stop:step]`` along ``axis``."""
    return x[(slice(None),) * (axis % x.ndim) + (slice(start, stop, step),)]


@reference("repeat_batch")
def repeat_batch(x: Array, like: Array) -> Array:
    """``y[n] = x[0]`` for every n along axis 0 of ``like``."""
    return np.repeat(x, len(like), axis=0)
