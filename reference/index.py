"""Picking and putting at computed places, element by element."""

import numpy as np

from bslite.errors import InputError
from bslite.reference.registry import Array, reference

REDUCE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def in_range(indices: Array, size: int, axis: int) -> Array:
    """Negative indices counted from the end. InputError for one outside ``[-size, size)``."""
    wrong = (indices < -size) | (indices >= size)
    if wrong.any():
        raise InputError(f"index {indices[wrong].flat[0]} is out of range for axis {axis} of size {size}")
    return np.where(indices < 0, indices + size, indices)


def put(x: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    """x with ``x[places] = updates``, one after the other, or reduced with what is there."""
    y = x.copy()
    if reduction == "none":
        y[places] = updates  # NumPy: of several to one place, the last stays
    else:
        REDUCE[reduction].at(y, places, updates)
    return y


def element_places(indices: Array, x: Array, axis: int) -> tuple[Array, ...]:
    """For every element of ``indices``, its place in x: its own place except along ``axis``."""
    axis %= x.ndim
    places = list(np.indices(indices.shape))
    places[axis] = in_range(indices, x.shape[axis], axis)
    return tuple(places)


def coordinates(indices: Array, x: Array, batch: int) -> tuple[Array, ...]:
    """The coordinates along the last axis of ``indices``, behind those of ``batch`` common axes."""
    own = [
        np.arange(n).reshape([-1 if a == d else 1 for a in range(indices.ndim - 1)])
        for d, n in enumerate(x.shape[:batch])
    ]
    count = indices.shape[-1]
    return (*own, *(in_range(indices[..., d], x.shape[batch + d], batch + d) for d in range(count)))


@reference("gather")
def gather(x: Array, indices: Array, *, axis: int) -> Array:
    """``x[..., indices, ...]`` at ``axis`` (ONNX ``Gather``). InputError for an index outside ``[-n, n)``."""
    return np.asarray(np.take(x, in_range(indices, x.shape[axis], axis), axis))


@reference("gather_elements")
def gather_elements(x: Array, indices: Array, *, axis: int) -> Array:
    """``y[i, j, k] = x[i, indices[i, j, k], k]`` for axis 1 (ONNX ``GatherElements``)."""
    return np.asarray(x[element_places(indices, x, axis)])


@reference("gather_nd")
def gather_nd(x: Array, indices: Array, *, batch_dims: int) -> Array:
    """``y[b, q] = x[b, indices[b, q, 0], ...]`` (ONNX ``GatherND``)."""
    return np.asarray(x[coordinates(indices, x, batch_dims)])


@reference("scatter_elements")
def scatter_elements(x: Array, indices: Array, updates: Array, *, axis: int, reduction: str) -> Array:
    """``y[i, indices[i, j, k], k] = updates[i, j, k]`` for axis 1 (ONNX ``ScatterElements``)."""
    return put(x, element_places(indices, x, axis), updates, reduction)


@reference("scatter_nd")
def scatter_nd(x: Array, indices: Array, updates: Array, *, reduction: str) -> Array:
    """``y[indices[q, 0], ...] = updates[q]`` (ONNX ``ScatterND``)."""
    return put(x, coordinates(indices, x, 0), updates, reduction)


@reference("topk")
def topk(x: Array, *, k: int, axis: int, largest: bool) -> Array:
    """The first k of a stable sort, NaN as the largest of all."""
    missing = np.isnan(x)
    rank = np.where(missing, 0, -x.astype(np.float64) if largest else x)  # exact: integers have 32 bits
    order = np.lexsort([rank, ~missing if largest else missing], axis)
    return order.take(np.arange(k), axis)


@reference("one_hot")
def one_hot(x: Array, *, depth: int, axis: int, on: float, off: float, to: str, strict: bool) -> Array:
    """``y[..., d, ...] = on if d == x else off``, d along ``axis`` (ONNX ``OneHot``)."""
    if strict and ((x < 0) | (x >= depth)).any():
        raise InputError(f"index {x[(x < 0) | (x >= depth)].flat[0]} is out of range for depth {depth}")
    axis %= x.ndim + 1
    position = np.arange(depth).reshape([-1 if a == axis else 1 for a in range(x.ndim + 1)])
    index = np.expand_dims(np.where(x < 0, x + depth, x), axis)
    return np.where(position == index, on, off).astype(to)
