"""Arrays that depend on free sizes alone, as values: one number everywhere, or numbers that count up.

A model has no values for sizes. It counts: a line of ones along a free axis of an input, summed as it goes,
counts up along it.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from bslite.frontends.common.unsupported import Varies
from bslite.frontends.onnx.broadcasts import distinct
from bslite.frontends.onnx.values import Const, Operand, Sizes, Value
from bslite.spec import Array

MOST_FREE = 2  # axes of free sizes along which a value is repeated


class Builder(Protocol):
    """The part of a store that is used here."""

    inputs: list[Value]
    lines: dict[tuple[str, int], Value]

    def emit(self, op: str, name: str, inputs: Sequence[Operand], **attrs: Any) -> Any:
        """Append a layer."""


def counted(store: Builder, sizes: Sizes) -> Value:
    """The value of an array that is one number, or counts up along an axis, in every probe; else Varies."""
    first = sizes.arrays[0]
    free = [axis for axis, size in enumerate(sizes.shape) if not isinstance(size, int)]
    if not 0 < len(free) <= MOST_FREE or first.dtype.kind not in "iub" or 0 in first.shape:
        raise Varies("a size that is free is used as a number")
    along = [axis for axis in range(first.ndim) if distinct(_compact(first)).shape[axis] > 1]
    if len(along) > 1 or not set(along) <= set(free):
        raise Varies("a size that is free is used as a number")
    start, step = _rule(sizes.arrays, along[0] if along else None)
    made: Value | None = None
    for axis in free:
        part = _line(store, [a.shape[axis] for a in sizes.arrays])
        if axis in along:
            part = _affine(store, part, start, step)
        else:
            part = store.emit("sub", f"{part.name}.zeros", [part, part])
        if first.ndim > 1:
            target = [1] * first.ndim
            target[axis] = -1
            part = store.emit("reshape", f"{part.name}.axis", [part], shape=tuple(target))
        made = part if made is None else store.emit("add", f"{part.name}.grid", [made, part])
    assert made is not None
    if not along:
        made = _affine(store, made, start, 1)
    if made.dtype != first.dtype.name:
        made = store.emit("cast", f"{made.name}.cast", [made], to=first.dtype.name)
    if any(s != a.shape for s, a in zip(made.shapes, sizes.arrays, strict=True)):
        shape = tuple(d if isinstance(d, int) else -1 for d in sizes.shape)
        made = store.emit("expand", f"{made.name}.expand", [made], shape=shape)
    return made


def _compact(a: Array) -> Array:
    """The array with the axes along which all is the same cut to size 1."""
    for axis in range(a.ndim):
        row = a[(slice(None),) * axis + (slice(0, 1),)]
        if a.shape[axis] > 1 and np.array_equal(a, np.broadcast_to(row, a.shape)):
            a = row
    return a


def _rule(arrays: Sequence[Array], axis: int | None) -> tuple[int, int]:
    """First number and step, the same in every probe; Varies if there is no such rule."""
    rules = set()
    for a in arrays:
        flat = _compact(a).reshape(-1).astype(np.int64)
        size = 1 if axis is None else a.shape[axis]
        step = int(flat[1] - flat[0]) if len(flat) > 1 else 0
        if len(flat) != size or not np.array_equal(flat, flat[0] + step * np.arange(size)):
            raise Varies("a size that is free is used as a number")
        rules.add((int(flat[0]), step))
    if len(rules) > 1:
        raise Varies("a size that is free is used as a number")
    return rules.pop()


def _line(store: Builder, sizes: Sequence[int]) -> Value:
    """0, 1, 2 and so on, as many as some input is long along an axis that is so long in every probe."""
    for x in store.inputs:
        for axis in range(x.rank):
            if [shape[axis] for shape in x.shapes] == list(sizes):
                if (x.name, axis) not in store.lines:
                    store.lines[x.name, axis] = _counting(store, x, axis)
                return store.lines[x.name, axis]
    raise Varies("a size that is free, and no input's, is used as a number")


def _counting(store: Builder, x: Value, axis: int) -> Value:
    """0, 1, 2 and so on, along an axis of an input, whose elements do not matter."""
    name, line = f"{x.name}.count{axis}", x
    for other in range(x.rank):
        if other != axis and x.shape[other] != 1:
            line = store.emit("slice", f"{name}.slice", [line], axis=other, start=0, stop=1)
    if x.rank > 1:
        line = store.emit("reshape", f"{name}.line", [line], shape=(-1,))
    if line.dtype == "bool":
        line = store.emit("cast", f"{name}.bool", [line], to="int64")
    pair = [line, line]
    same = store.emit("equal", f"{name}.equal", pair)  # not of NaN
    if line.dtype == "float32":
        same = store.emit("or", f"{name}.or", [same, store.emit("not_equal", f"{name}.not_equal", pair)])
    ones = store.emit("cast", f"{name}.ones", [same], to="int64")
    ends = store.emit("cumsum", f"{name}.sum", [ones], axis=0)
    made: Value = store.emit("sub", name, [ends, ones])
    return made


def _affine(store: Builder, x: Value, start: int, step: int) -> Value:
    """``start + step * x`` of int64."""
    if step != 1:
        x = store.emit("mul", f"{x.name}.step", [x, Const(np.asarray(step), "step")])
    if start:
        x = store.emit("add", f"{x.name}.start", [x, Const(np.asarray(start), "start")])
    return x
