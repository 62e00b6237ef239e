"""Builders of Split, Slice, Gather and GatherND."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.unsupported import Varies
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.arith import is_known
from bslite.frontends.onnx.ops.moves import axes_of, axis_of, reshaped
from bslite.frontends.onnx.ops.shapes import sizes_of
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Const, Dim, Operand, Sizes, Value, at, merge
from bslite.ops import Shape
from bslite.spec import Array


@onnx_op("Split")
def split(
    s: Site, x: Operand, split: Operand | tuple[int, ...] | None = None, *, axis: int,
    num_outputs: int | None = None,
) -> Any:  # fmt: skip
    parts = None if split is None else s.ints(split, "its split")
    count = num_outputs or len(s.used)
    axis = axis_of(axis, x.rank)
    size = x.shape[axis]
    if not isinstance(size, int):
        raise Varies("it splits a free size")
    if parts is None:
        if not 0 < count <= 10_000:
            raise SpecError(f"it splits into {count}")
        each = -(-size // count)
        parts = [max(0, min(each, size - i * each)) for i in range(count)]
    if sum(parts) != size or min(parts) < 0 or len(parts) < len(s.used):
        raise SpecError(f"it splits axis {axis} of {list(x.shape)} into {list(parts)}")
    made: list[Operand | None] = [None] * len(parts)
    for i, used in enumerate(s.used):
        start = sum(parts[:i])
        if used:
            made[i] = (
                x if parts[i] == size else sliced(s, x, axis, start, start + parts[i], 1, len(parts) == 1)
            )
    return tuple(made)


def sliced(s: Site, x: Operand, axis: int, start: int, stop: int | None, step: int, last: bool) -> Operand:
    """``x[start:stop:step]`` along ``axis``."""
    if not isinstance(x, Value):
        index = (*(slice(None),) * axis, slice(start, stop, step))
        return s.compute(lambda a: a[index], x, view=True)
    size = x.shape[axis]
    emit = s.emit if last else s.inner
    if isinstance(size, int) and not range(*slice(start, stop, step).indices(size)):
        return nothing_left(s, x, axis)
    if start == 0 and stop is None and step == 1:
        return x
    if isinstance(size, int) and range(*slice(start, stop, step).indices(size)) == range(size):
        return x
    return emit("slice", x, axis=axis, start=start, stop=stop, step=step)


def nothing_left(s: Site, x: Value, axis: int, dtype: str | None = None) -> Operand:
    """``x``, or a value of another ``dtype``, with nothing left of ``axis``."""

    def nothing(dims: Array) -> Array:
        return np.zeros((*dims[:axis], 0, *dims[axis + 1 :]), dtype or x.dtype)

    return s.compute(nothing, sizes_of(x, s))


@onnx_op("Slice")
def slice_(
    s: Site, x: Operand, starts: Operand | tuple[int, ...], ends: Operand | tuple[int, ...],
    axes: Operand | tuple[int, ...] | None = None, steps: Operand | None = None,
) -> Operand:  # fmt: skip
    begins, stops = s.dims(starts, "its starts"), s.dims(ends, "its ends")
    over = axes_of(range(len(begins)) if axes is None else s.ints(axes, "its axes"), x.rank)
    by = [1] * len(over) if steps is None else s.ints(steps, "its steps")
    if not len(begins) == len(stops) == len(over) == len(by) or 0 in by:
        raise SpecError(f"starts {begins}, ends {stops}, axes {over}, steps {by} do not fit")
    for i, (axis, start, stop, step) in enumerate(zip(over, begins, stops, by, strict=True)):
        bounds = [
            bound(at(start, p), at(stop, p), step, at(x.shape[axis], p)) for p in range(len(s.store.probes))
        ]
        first, end, back = zip(*bounds, strict=True)
        begin, count = merge(first), merge([n for _, n, _ in bounds])
        sizes = [at(x.shape[axis], p) for p in range(len(s.store.probes))]
        if step == 1 and first == (0,) * len(first) and list(end) == sizes:
            continue
        cut: tuple[int, int | None, int]
        if count == 0:
            cut = 0, 0, 1
        elif isinstance(begin, int) and isinstance(count, int):
            cut = begin, _stop(begin, count, step), step
        elif step > 0 and isinstance(begin, int) and list(end) == [len(range(begin, n, step)) for n in sizes]:
            cut = begin, None, step
        elif step > 0 and isinstance(merge(back), int) and isinstance(begin, int):
            cut = begin, -back[0] or None, step
        elif step < 0 and list(first) == [n - 1 for n in sizes] and list(end) == [-1] * len(end):
            cut = -1, None, step
        elif isinstance(x, Value):
            raise Varies("its bounds depend on free sizes")
        else:
            x = _each_sliced(s, x, axis, first, count, step)
            continue
        x = sliced(s, x, axis, *cut, i == len(over) - 1)
    return x


def _each_sliced(s: Site, x: Operand, axis: int, first: Sequence[int], count: Dim, step: int) -> Operand:
    """``count`` elements of a known array from the ``first``, as many as each probe says."""
    ends = [(n, _stop(n, at(count, p), step)) for p, n in enumerate(first)]
    cuts = Sizes(tuple(np.array([n, -1 if end is None else end, end is None]) for n, end in ends))

    def cut(a: Array, bounds: Array) -> Array:
        start, stop, whole = map(int, bounds)
        index = (*(slice(None),) * axis, slice(start, None if whole else stop, step))
        return a[index]

    return s.compute(cut, x, cuts, view=True)


def bound(start: int, stop: int, step: int, size: int) -> tuple[int, int, int]:
    """First index, number of elements, and elements behind the stop, by Python's rules, which are ONNX's."""
    if step < 0 and stop < -size:
        r = range(*slice(start, None, step).indices(size))
    else:
        r = range(*slice(start, stop, step).indices(size))
    _, end, _ = slice(start, stop, step).indices(size)
    return r.start, len(r), size - end


def _stop(begin: int, count: int, step: int) -> int | None:
    """The stop after ``count`` elements, None where it would be before the beginning."""
    stop = begin + count * step
    return None if stop < 0 else stop


@onnx_op("Gather")
def gather(s: Site, x: Operand, indices: Operand, *, axis: int) -> Operand:
    axis = axis_of(axis, x.rank)
    if isinstance(indices, Sizes) and isinstance(x, Const) and x.rank > 1 and x.dtype == "float32":
        return s.emit("gather", x, s.store.value(indices), axis=axis)
    if is_known(x, indices):
        return s.compute(lambda a, i: np.take(a, i, axis), x, indices)
    if isinstance(indices, Sizes) and isinstance(x, Value):
        picked = [np.ravel(a) for a in indices.arrays]
        if _in_order(picked, [shape[axis] for shape in x.shapes]):
            return reshaped(s, x, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))
        return s.emit("gather", x, s.store.value(indices), axis=axis)
    if isinstance(x, Sizes):
        raise Varies("its data depends on free sizes")
    size = x.shape[axis]
    if isinstance(indices, Const) and isinstance(size, int) and isinstance(x, Value):
        found = indices.data
        if found.dtype.kind not in "iu" or (found.size and not (-size <= found.min() and found.max() < size)):
            raise SpecError(f"its indices are not integers within axis {axis} of {list(x.shape)}")
        if found.size == 1:
            index = int(found.reshape(-1)[0]) % size
            thin = sliced(s, x, axis, index, index + 1, 1, found.ndim == 1)
            want = (*x.shape[:axis], *found.shape, *x.shape[axis + 1 :])
            return reshaped(s, thin, want)
    return s.emit("gather", x, indices, axis=axis)


def _in_order(picked: Sequence[Array], sizes: Sequence[int]) -> bool:
    """Whether indices pick every element, in order, in every probe: what exporters make of as_strided."""
    return all(np.array_equal(a, np.arange(size)) for a, size in zip(picked, sizes, strict=True))


@onnx_op("GatherND")
def gather_nd(s: Site, x: Operand, indices: Operand, *, batch_dims: int = 0) -> Operand:
    if isinstance(x, Value) and isinstance(indices, (Sizes, Const)) and not batch_dims:
        depth = int(indices.shapes[0][-1]) if indices.rank else 0
        arrays = indices.arrays if isinstance(indices, Sizes) else (indices.data,)
        shapes = x.shapes if isinstance(indices, Sizes) else x.shapes[:1]
        fits = 0 < depth <= x.rank and (isinstance(indices, Sizes) or len(set(x.shapes)) == 1)
        if fits and all(_whole(a, shape[:depth]) for a, shape in zip(arrays, shapes, strict=True)):
            return reshaped(s, x, (*indices.shape[:-1], *x.shape[depth:]))
    return s.emit("gather_nd", x, indices, batch_dims=batch_dims)


def _whole(indices: Array, shape: Shape) -> bool:
    """Whether lists of indices are those of all elements, in order."""
    if indices.size != math.prod(shape) * len(shape):
        return False
    grid = np.indices(shape).reshape(len(shape), -1)
    return np.array_equal(indices.reshape(-1, len(shape)).T, grid)
