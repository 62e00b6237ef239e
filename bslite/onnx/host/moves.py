"""Operators that move data to places, or into sizes, which are values: where those change with every call, a
plan for each would be no use. Also those that may see empty arrays or values that are no arrays.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.errors import InputError
from bslite.frontends.onnx.tensors import sizes
from bslite.onnx.host.node import host_op
from bslite.spec import Array


def _ints(given: Any) -> list[int]:
    """Integers of an input, or in older opsets an attribute."""
    array = np.asarray(given)
    found = array.reshape(-1).tolist()
    return found if array.dtype.kind in "iu" else [int(v) for v in found]


def _shape(given: Array) -> tuple[int, ...]:
    return sizes(_ints(given), "its result")


@host_op("Identity")
def identity(x: Any) -> Any:
    """The input."""
    return x


@host_op("Shape")
def shape(x: Array, *, start: int = 0, end: int | None = None) -> Array:
    """The sizes, or some of them."""
    return np.array(x.shape[slice(start, end)], np.int64)


@host_op("Size")
def size(x: Array) -> Array:
    """The number of elements."""
    return np.array(x.size, np.int64)


@host_op("Slice")
def slice_(x: Array, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Array:
    """``x[start:end:step]`` along each of ``axes``."""
    begins, stops = _ints(starts), _ints(ends)
    over = list(range(len(begins))) if axes is None else _ints(axes)
    by = [1] * len(begins) if steps is None else _ints(steps)
    rank = x.ndim
    index = [slice(None)] * rank
    for axis, start, stop, step in zip(over, begins, stops, by, strict=True):
        if not -rank <= axis < rank:
            raise InputError(f"axis {axis} is out of range for rank {rank}")
        end: int | None = None if step < 0 and stop < -x.shape[axis] else stop
        index[axis] = slice(start, end, step)
    made = x[tuple(index)]
    return made if made.flags.c_contiguous else made.copy()


@host_op("Reshape")
def reshape(x: Array, shape: Any, *, allowzero: int = 0) -> Array:
    """``x`` in another shape: 0 copies a size, -1 is what is left."""
    want = _ints(shape)
    if not allowzero:
        want = [x.shape[i] if d == 0 else d for i, d in enumerate(want)]
    return x.reshape(want)


@host_op("Expand")
def expand(x: Array, shape: Array) -> Array:
    """``x`` repeated to the shape that it and ``shape`` broadcast to."""
    return np.array(np.broadcast_to(x, np.broadcast_shapes(x.shape, _shape(shape))))


@host_op("Tile")
def tile(x: Array, repeats: Array) -> Array:
    """``x`` repeated along each axis."""
    return np.tile(x, _shape(repeats))


@host_op("Range")
def range_(start: Array, limit: Array, delta: Array) -> Array:
    """Numbers from ``start`` up to ``limit``, ``delta`` apart."""
    a, b, d = start.item(), limit.item(), delta.item()
    if d == 0:
        raise InputError("a step of zero")
    whole = start.dtype.kind in "iu"
    count = max(0, -((a - b) // d) if whole else math.ceil((b - a) / d))
    if count > 1:
        sizes([count], "its result")
    if whole:
        return np.arange(a, a + count * d, d, dtype=start.dtype)
    return (a + np.arange(count) * d).astype(start.dtype)


@host_op("ConstantOfShape")
def constant_of_shape(shape: Array, *, value: Array | None) -> Array:
    """One number everywhere."""
    filler = np.zeros(1, np.float32) if value is None else value
    return np.full(_shape(shape), filler.reshape(-1)[0], filler.dtype)


@host_op("Squeeze")
def squeeze(x: Array, axes: Any = None) -> Array:
    """``x`` without axes of size 1."""
    return np.squeeze(x, None if axes is None else tuple(_ints(axes)))


@host_op("Unsqueeze")
def unsqueeze(x: Array, axes: Any) -> Array:
    """``x`` with axes of size 1 put in."""
    return np.expand_dims(x, tuple(_ints(axes)))


@host_op("Transpose")
def transpose(x: Array, *, perm: Sequence[int] | None) -> Array:
    """``x`` with its axes in another order, by default in reverse."""
    return np.ascontiguousarray(np.transpose(x, perm))


@host_op("Concat")
def concat(*xs: Array, axis: int) -> Array:
    """Arrays side by side."""
    return np.concatenate(xs, axis)


@host_op("Split")
def split(
    x: Array, split: Any = None, *, axis: int, num_outputs: int | None = None, results: int
) -> tuple[Array, ...]:
    """Parts along an axis, by default of one size (the last may be smaller)."""
    size = x.shape[axis]
    if split is None:
        each = -(-size // (num_outputs or results))
        parts = [max(0, min(each, size - i * each)) for i in range(num_outputs or results)]
    else:
        parts = _ints(split)
    if sum(parts) != size or min(parts, default=0) < 0:
        raise InputError(f"it splits axis {axis} of {list(x.shape)} into {parts}")
    return tuple(np.ascontiguousarray(p) for p in np.split(x, np.cumsum(parts)[:-1], axis))


@host_op("Gather")
def gather(x: Array, indices: Array, *, axis: int) -> Array:
    """The slices at ``indices`` along ``axis``."""
    return np.take(x, indices, axis)


@host_op("GatherND")
def gather_nd(x: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    """The slices that rows of ``indices`` point at, behind the ``batch_dims`` axes that both have."""
    batch = indices.shape[:batch_dims]
    if x.shape[:batch_dims] != batch:
        raise InputError(f"batches {list(x.shape[:batch_dims])} and {list(batch)} differ")
    count = int(np.prod(batch, dtype=np.int64))
    flat, rows = x.reshape(count, *x.shape[batch_dims:]), indices.reshape(count, *indices.shape[batch_dims:])
    picked = [a[tuple(np.moveaxis(i, -1, 0))] for a, i in zip(flat, rows, strict=True)]
    rest = (*indices.shape[batch_dims:-1], *x.shape[batch_dims + indices.shape[-1] :])
    return np.array(picked, x.dtype).reshape(*batch, *rest)
