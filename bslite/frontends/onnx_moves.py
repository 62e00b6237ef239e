"""Builders of what moves elements: reshapes, permutations, slices, concatenation, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.onnx_arith import is_known
from bslite.frontends.onnx_context import Site, onnx_op
from bslite.frontends.onnx_shapes import checked, sizes_of
from bslite.frontends.onnx_values import (
    Const,
    Dim,
    Dims,
    Operand,
    Sizes,
    Value,
    Varies,
    at,
    merge,
    product,
)
from bslite.spec import Array


def axis_of(axis: int, rank: int) -> int:
    """A non-negative axis."""
    if not -rank <= axis < rank:
        raise SpecError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def axes_of(axes: Sequence[int], rank: int) -> list[int]:
    """Non-negative axes, each once."""
    made = [axis_of(a, rank) for a in axes]
    if len(set(made)) != len(made):
        raise SpecError(f"axes {list(axes)} name one twice")
    return made


def reshaped(s: Site, x: Operand, want: Dims, last: bool = True) -> Operand:
    """``x`` in another shape, free sizes left free; the node's result if ``last``."""
    if not isinstance(x, Value):
        return s.compute(lambda a: _fit(s, a, want), x)
    if x.shape == want:
        return x
    have, emit = x.shape, s.emit if last else s.inner
    start = min(_common(have, want), len(want) - 1)
    tail = len(want) - 1 - start
    if len(have) > len(want) and start > 0 and have[len(have) - tail :] == want[start + 1 :]:
        return emit("flatten", x, start_axis=start, end_axis=len(have) - 1 - tail)
    return emit("reshape", x, shape=target(have, want))


def _fit(s: Site, a: Array, want: Dims) -> Array:
    """A known array in the one of the shapes ``want`` that it fills."""
    for i in range(len(s.store.probes)):
        shape = tuple(at(d, i) for d in want)
        if np.prod(shape, dtype=np.int64) == a.size:
            return a.reshape(shape)
    raise SpecError(f"{list(a.shape)} does not fill {list(want)}")


def _common(a: Dims, b: Dims) -> int:
    """How many sizes two shapes begin with alike."""
    return next((i for i, (p, q) in enumerate(zip(a, b, strict=False)) if p != q), min(len(a), len(b)))


def target(have: Dims, want: Dims) -> tuple[int, ...]:
    """The reshape op's spelling: 0 keeps a free size in its place, one other is inferred."""
    out = []
    for i, d in enumerate(want):
        if not isinstance(d, int):
            d = 0 if i < len(have) and have[i] == d else -1
        elif d < 1:
            raise SpecError(f"its result {list(want)} is empty or has a negative size")
        out.append(d)
    if out.count(-1) > 1:
        raise Varies(f"from {list(have)} to {list(want)}: two sizes depend on free ones")
    return tuple(out)


@onnx_op("Reshape")
def reshape(s: Site, x: Operand, shape: Operand, *, allowzero: int = 0) -> Operand:
    if not isinstance(x, Value):
        return s.compute(lambda a, t: _reshape(a, t, allowzero), x, s.known(shape, "its shape"))
    want = s.dims(shape, "its shape")
    for i, d in enumerate(want):
        if d == 0 and not allowzero:
            if i >= x.rank:
                raise SpecError(f"its shape {want} copies a size that the input {list(x.shape)} lacks")
            want[i] = x.shape[i]
    if want.count(-1) == 1:
        hole = want.index(-1)
        rest = product([d for d in want if d != -1])
        have = product(x.shape)
        if not all(at(rest, i) > 0 and at(have, i) % at(rest, i) == 0 for i in range(len(s.store.probes))):
            raise SpecError(f"the input {list(x.shape)} does not fill {want}")
        want[hole] = merge([at(have, i) // at(rest, i) for i in range(len(s.store.probes))])
    return reshaped(s, x, tuple(want))


def _reshape(a: Array, shape: Array, allowzero: int) -> Array:
    want = [int(d) for d in shape.reshape(-1)]
    if not allowzero:
        want = [a.shape[i] if d == 0 else d for i, d in enumerate(want)]
    return a.reshape(want)


@onnx_op("Flatten")
def flatten(s: Site, x: Operand, *, axis: int) -> Operand:
    if not -x.rank <= axis <= x.rank:
        raise SpecError(f"axis {axis} is out of range for rank {x.rank}")
    axis = axis + x.rank if axis < 0 else axis
    if isinstance(x, Sizes):
        raise Varies("of a size")
    return reshaped(s, x, (product(x.shape[:axis]), product(x.shape[axis:])))


@onnx_op("Squeeze")
def squeeze_by_attribute(s: Site, x: Operand, *, axes: Sequence[int] | None) -> Operand:
    return _squeeze(s, x, axes)


@onnx_op("Squeeze", since=13)
def squeeze(s: Site, x: Operand, axes: Operand | None = None) -> Operand:
    return _squeeze(s, x, None if axes is None else s.ints(axes, "its axes"))


def _squeeze(s: Site, x: Operand, axes: Sequence[int] | None) -> Operand:
    shape = x.shape
    gone = [i for i, d in enumerate(shape) if d == 1] if axes is None else axes_of(axes, x.rank)
    if any(shape[a] != 1 for a in gone):
        raise SpecError(f"it drops axes {gone} of {list(shape)}, which are not all of size 1")
    if not isinstance(x, Value):
        return s.compute(lambda a: a.reshape([d for i, d in enumerate(a.shape) if i not in gone]), x)
    return reshaped(s, x, tuple(d for i, d in enumerate(shape) if i not in gone))


@onnx_op("Unsqueeze")
def unsqueeze_by_attribute(s: Site, x: Operand, *, axes: Sequence[int]) -> Operand:
    return _unsqueeze(s, x, axes)


@onnx_op("Unsqueeze", since=13)
def unsqueeze(s: Site, x: Operand, axes: Operand) -> Operand:
    return _unsqueeze(s, x, s.ints(axes, "its axes"))


def _unsqueeze(s: Site, x: Operand, axes: Sequence[int]) -> Operand:
    new = axes_of(axes, x.rank + len(axes))
    if x.rank + len(axes) > 32:
        raise SpecError(f"it makes {x.rank + len(axes)} axes")
    if not isinstance(x, Value):
        return s.compute(lambda a: np.expand_dims(a, tuple(new)), x)
    sizes = iter(x.shape)
    return reshaped(s, x, tuple(1 if i in new else next(sizes) for i in range(x.rank + len(new))))


@onnx_op("Transpose")
def transpose(s: Site, x: Operand, *, perm: Sequence[int] | None) -> Operand:
    order = list(range(x.rank))[::-1] if perm is None else axes_of(perm, x.rank)
    if len(order) != x.rank:
        raise SpecError(f"its perm {order} does not fit rank {x.rank}")
    return permuted(s, x, order)


def permuted(s: Site, x: Operand, order: Sequence[int], last: bool = True) -> Operand:
    """``x`` with its axes in another order."""
    if list(order) == sorted(order):
        return x
    if not isinstance(x, Value):
        return s.compute(lambda a: np.transpose(a, order), x)
    return (s.emit if last else s.inner)("permute", x, order=tuple(order))


@onnx_op("Concat")
def concat(s: Site, *xs: Operand, axis: int) -> Operand:
    axis = axis_of(axis, xs[0].rank)
    if is_known(*xs):
        return s.compute(lambda *a: np.concatenate(a, axis), *xs)
    filled = [x for x in xs if isinstance(x, Value) or x.rank != xs[0].rank or 0 not in x.shapes[0]]
    return filled[0] if len(filled) == 1 else s.emit("concat", *filled, axis=axis)


@onnx_op("Split")
def split_by_attribute(s: Site, x: Operand, *, axis: int, split: Sequence[int] | None) -> Any:
    return _split(s, x, axis, split, len(s.used))


@onnx_op("Split", since=13)
def split(
    s: Site, x: Operand, split: Operand | None = None, *, axis: int, num_outputs: int | None = None
) -> Any:
    return _split(
        s, x, axis, None if split is None else s.ints(split, "its split"), num_outputs or len(s.used)
    )


def _split(s: Site, x: Operand, axis: int, parts: Sequence[int] | None, count: int) -> Any:
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
        return s.compute(lambda a: a[index], x)
    size = x.shape[axis]
    emit = s.emit if last else s.inner
    if isinstance(size, int) and not range(*slice(start, stop, step).indices(size)):
        return empty(s, x, axis)
    if start == 0 and stop is None and step == 1:
        return x
    if isinstance(size, int) and range(*slice(start, stop, step).indices(size)) == range(size):
        return x
    return emit("slice", x, axis=axis, start=start, stop=stop, step=step)


def empty(s: Site, x: Value, axis: int) -> Operand:
    """``x`` with nothing left of ``axis``."""

    def nothing(dims: Array) -> Array:
        return np.zeros((*dims[:axis], 0, *dims[axis + 1 :]), x.dtype)

    return s.compute(nothing, sizes_of(x, s))


@onnx_op("Slice")
def slice_by_attributes(
    s: Site, x: Operand, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None
) -> Operand:
    return _slice(s, x, list(starts), list(ends), axes, None)


@onnx_op("Slice", since=10)
def slice_(
    s: Site,
    x: Operand,
    starts: Operand,
    ends: Operand,
    axes: Operand | None = None,
    steps: Operand | None = None,
) -> Operand:
    at_axes = None if axes is None else s.ints(axes, "its axes")
    by = None if steps is None else s.ints(steps, "its steps")
    return _slice(s, x, s.dims(starts, "its starts"), s.dims(ends, "its ends"), at_axes, by)


def _slice(
    s: Site,
    x: Operand,
    starts: Sequence[Dim],
    ends: Sequence[Dim],
    given: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> Operand:
    axes = axes_of(range(len(starts)) if given is None else given, x.rank)
    steps = [1] * len(axes) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise SpecError(
            f"starts {list(starts)}, ends {list(ends)}, axes {axes}, steps {list(steps)} do not fit"
        )
    for i, (axis, start, stop, step) in enumerate(zip(axes, starts, ends, steps, strict=True)):
        bounds = [
            bound(at(start, p), at(stop, p), step, at(x.shape[axis], p)) for p in range(len(s.store.probes))
        ]
        first, end, back = zip(*bounds, strict=True)
        begin, count = merge(first), merge([n for _, n, _ in bounds])
        sizes = [at(x.shape[axis], p) for p in range(len(s.store.probes))]
        if step == 1 and first == (0,) * len(first) and list(end) == sizes:
            continue
        if count == 0:
            x = sliced(s, x, axis, 0, 0, 1, i == len(axes) - 1)
            continue
        if isinstance(begin, int) and isinstance(count, int):
            x = sliced(s, x, axis, begin, _stop(begin, count, step), step, i == len(axes) - 1)
        elif step > 0 and isinstance(begin, int) and list(end) == [len(range(begin, n, step)) for n in sizes]:
            x = sliced(s, x, axis, begin, None, step, i == len(axes) - 1)
        elif step > 0 and isinstance(merge(back), int) and isinstance(begin, int):
            x = sliced(s, x, axis, begin, -back[0] or None, step, i == len(axes) - 1)
        elif step < 0 and list(first) == [n - 1 for n in sizes] and list(end) == [-1] * len(end):
            x = sliced(s, x, axis, -1, None, step, i == len(axes) - 1)
        else:
            raise Varies("its bounds depend on free sizes")
    return x


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
    if is_known(x, indices):
        return s.compute(lambda a, i: np.take(a, i, axis), x, indices)
    if isinstance(indices, Sizes) or isinstance(x, Sizes):
        raise Varies("its indices or data depend on free sizes")
    size = x.shape[axis]
    if isinstance(indices, Const) and isinstance(size, int) and isinstance(x, Value):
        found = indices.array
        if found.dtype.kind not in "iu" or (found.size and not (-size <= found.min() and found.max() < size)):
            raise SpecError(f"its indices are not integers within axis {axis} of {list(x.shape)}")
        if found.size == 1:
            index = int(found.reshape(-1)[0]) % size
            thin = sliced(s, x, axis, index, index + 1, 1, found.ndim == 1)
            want = (*x.shape[:axis], *found.shape, *x.shape[axis + 1 :])
            return reshaped(s, thin, want)
    return s.emit("gather", x, indices, axis=axis)


@onnx_op("Expand")
def expand(s: Site, x: Operand, shape: Operand) -> Operand:
    if is_known(x, shape):
        return s.compute(lambda a, d: _expand(s, a, d), x, shape)
    return expanded(s, x, s.dims(shape, "its shape"))


def expanded(s: Site, x: Operand, want: Sequence[Dim]) -> Operand:
    """``x`` broadcast together with the shape ``want``."""
    have: Dims = (*(1,) * (len(want) - x.rank), *x.shape)
    want = (*(1,) * (len(have) - len(want)), *want)
    target = [h if w == 1 else w for h, w in zip(have, want, strict=True)]
    if tuple(target) == x.shape:
        return x
    if isinstance(x, Value) and isinstance(target[0], tuple) and have[0] == 1:
        like = [i for i in s.store.inputs if i.rank and i.shape[0] == target[0]]
        if like:
            row = reshaped(s, x, have, last=False)
            fixed = list(target[1:]) == list(have[1:])
            x = (s.emit if fixed else s.inner)("repeat_batch", row, like[0])
            have = x.shape
            if fixed:
                return x
    if any(isinstance(t, tuple) and t != h for t, h in zip(target, have, strict=True)):
        raise Varies("it repeats along a free size")
    return s.emit("expand", x, shape=tuple(t if isinstance(t, int) else -1 for t in target))


@onnx_op("Tile")
def tile(s: Site, x: Operand, repeats: Operand) -> Operand:
    times = s.ints(repeats, "its repeats")
    if len(times) != x.rank or min(times, default=1) < 0:
        raise SpecError(f"its repeats {times} do not fit rank {x.rank}")
    if not isinstance(x, Value):
        return s.compute(lambda a: _tile(s, a, times), x)
    return s.emit("tile", x, repeats=tuple(times))


def _tile(s: Site, a: Array, times: Sequence[int]) -> Array:
    checked(s, np.array([d * n for d, n in zip(a.shape, times, strict=True)], object))
    return np.tile(a, times)


@onnx_op("Trilu")
def trilu(s: Site, x: Operand, k: Operand | None = None, *, upper: int) -> Operand:
    diagonal = 0 if k is None else int(s.number(k, "its k"))
    if not isinstance(x, Value):
        return s.compute(lambda a: (np.triu if upper else np.tril)(a, diagonal), x)
    return s.emit("trilu", x, upper=bool(upper), diagonal=diagonal)


def _expand(s: Site, a: Array, dims: Array) -> Array:
    shape = np.broadcast_shapes(a.shape, checked(s, dims))
    return np.broadcast_to(a, shape).copy()


@onnx_op("Pad")
def pad_by_attributes(s: Site, x: Operand, *, pads: Sequence[int], mode: str, value: float) -> Operand:
    return _pad(s, x, pads, list(range(x.rank)), mode, value)


@onnx_op("Pad", since=11)
def pad(
    s: Site,
    x: Operand,
    pads: Operand,
    value: Operand | None = None,
    axes: Operand | None = None,
    *,
    mode: str,
) -> Operand:
    at_axes = list(range(x.rank)) if axes is None else axes_of(s.ints(axes, "its axes"), x.rank)
    number = 0.0 if value is None else s.number(value, "its value")
    return _pad(s, x, s.ints(pads, "its pads"), at_axes, mode, number)


def _pad(s: Site, x: Operand, pads: Sequence[int], axes: Sequence[int], mode: str, value: Any) -> Operand:
    if len(pads) != 2 * len(axes):
        raise SpecError(f"its pads {list(pads)} do not fit {len(axes)} axes")
    before, after = [0] * x.rank, [0] * x.rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[len(axes) + i]
    around = (*before, *after)
    if not any(around):
        return x
    if mode != "constant":
        return s.emit("pad", x, pads=around, mode=mode)
    return s.emit("pad", x, pads=around, value=value)


@onnx_op("DepthToSpace")
def depth_to_space(s: Site, x: Operand, *, blocksize: int, mode: str = "DCR") -> Operand:
    n, c, h, w = _image(x)
    b = blocksize
    if b < 1 or not isinstance(c, int) or c % (b * b):
        raise SpecError(f"{c} channels do not make blocks of {b} x {b}")
    if mode == "DCR":
        y = reshaped(s, x, (n, b, b, c // (b * b), h, w), last=False)
        y = permuted(s, y, (0, 3, 4, 1, 5, 2), last=False)
    else:
        y = reshaped(s, x, (n, c // (b * b), b, b, h, w), last=False)
        y = permuted(s, y, (0, 1, 4, 2, 5, 3), last=False)
    return reshaped(s, y, (n, c // (b * b), product([h, b]), product([w, b])))


@onnx_op("SpaceToDepth")
def space_to_depth(s: Site, x: Operand, *, blocksize: int, mode: str = "DCR") -> Operand:
    n, c, h, w = _image(x)
    b = blocksize
    if b < 1 or not (isinstance(h, int) and isinstance(w, int)) or h % b or w % b:
        raise SpecError(f"an image of {h} x {w} has no blocks of {b} x {b}")
    y = reshaped(s, x, (n, c, h // b, b, w // b, b), last=False)
    y = permuted(s, y, (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4), last=False)
    return reshaped(s, y, (n, product([c, b * b]), h // b, w // b))


def _image(x: Operand) -> Dims:
    if x.rank != 4:
        raise SpecError(f"its input has rank {x.rank}, expected 4")
    return x.shape
