"""Ops that move or repeat elements."""

import math
from collections.abc import Callable

import numpy as np

from bslite.reference.registry import Array, reference

#: Those that are one NumPy call of the same meaning.
CALLS: dict[str, Callable[..., Array]] = {
    "concat": lambda *xs, axis: np.concatenate(xs, axis),
    "permute": lambda x, *, order: x.transpose(order),
    "tile": lambda x, *, repeats: np.tile(x, repeats),
    "roll": lambda x, *, shifts, axes: np.roll(x, shifts, axes),
}
for _name, _call in CALLS.items():
    reference(_name)(_call)


@reference("flatten")
def flatten(x: Array, *, start_axis: int, end_axis: int) -> Array:
    """The axes ``start_axis`` to ``end_axis``, both included, made one, row-major."""
    start, stop = start_axis % x.ndim, end_axis % x.ndim + 1
    return x.reshape(*x.shape[:start], math.prod(x.shape[start:stop]), *x.shape[stop:])


@reference("reshape")
def reshape(x: Array, *, shape: tuple[int, ...]) -> Array:
    """Row-major reshape; 0 copies the input's size at that position (ONNX ``Reshape``, allowzero=0), -2 - i
    that at position i.
    """
    axes = [i if d == 0 else -2 - d for i, d in enumerate(shape)]
    return x.reshape([x.shape[axis] if axis >= 0 else d for axis, d in zip(axes, shape, strict=True)])


@reference("slice")
def slice_(x: Array, *, axis: int, start: int, stop: int | None, step: int) -> Array:
    """``x[start:stop:step]`` along ``axis``."""
    return x[(slice(None),) * (axis % x.ndim) + (slice(start, stop, step),)]


@reference("repeat_batch")
def repeat_batch(x: Array, like: Array) -> Array:
    """``y[n] = x[0]`` for every n along axis 0 of ``like``."""
    return np.repeat(x, len(like), axis=0)
