"""Builders that pick and place elements by indices, and that make indices of values."""

from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.moves import axis_of, reshaped
from bslite.frontends.onnx.ops.slices import nothing_left
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Operand, Value, fixed, product

#: Operator -> the op with the same inputs and attributes.
SAME = {
    "GatherElements": "gather_elements", "Scatter": "scatter_elements", "ScatterElements": "scatter_elements",
    "ScatterND": "scatter_nd",
}  # fmt: skip


@onnx_op(*SAME)
def same(s: Site, x: Operand, *indices: Operand, **attrs: Any) -> Operand:
    if "axis" in attrs:
        attrs["axis"] = axis_of(attrs["axis"], x.rank)
    return s.emit(SAME[s.op_type], x, *indices, **attrs)


@onnx_op("OneHot")
def one_hot(s: Site, indices: Operand, depth: Operand, values: Operand, *, axis: int) -> Operand:
    pair = s.array(values, "its values").reshape(-1)
    if pair.size != 2:
        raise SpecError(f"it has {pair.size} values, expected two: off and on")
    if indices.dtype == "float32":
        indices = s.inner("cast", indices, to="int64")
    return s.emit(
        "one_hot",
        indices,
        depth=int(s.number(depth, "its depth")),
        axis=axis_of(axis, indices.rank + 1),
        off=pair[0].item(),
        on=pair[1].item(),
        to=values.dtype,
    )


@onnx_op("TopK")
def top_k(
    s: Site, x: Operand, k: Operand | int, *, axis: int, largest: int = 1, sorted: int = 1
) -> tuple[Operand | None, Operand]:
    """The values, picked by their indices; and the indices."""
    axis, count = axis_of(axis, x.rank), int(s.number(k, "its k"))
    if count == 0 and isinstance(x, Value):
        return nothing_left(s, x, axis), nothing_left(s, x, axis, "int64")
    if count == 0:
        return s.compute(lambda a: a.take([], axis), x), s.compute(lambda a: np.int64(a.take([], axis)), x)
    indices = s.inner("topk", x, k=count, axis=axis, largest=bool(largest))
    return s.emit("gather_elements", x, indices, axis=axis) if s.used[0] else None, indices


@onnx_op("Hardmax")
def hardmax_of_rows(s: Site, x: Operand, *, axis: int) -> Operand:
    """Before opset 13: over all axes from ``axis`` on, together."""
    axis = axis_of(axis, x.rank)
    rows = reshaped(s, x, (*x.shape[:axis], product(x.shape[axis:])), last=False)
    return reshaped(s, _hardmax(s, rows, axis), x.shape)


@onnx_op("Hardmax", since=13)
def hardmax(s: Site, x: Operand, *, axis: int) -> Operand:
    return _hardmax(s, x, axis_of(axis, x.rank))


def _hardmax(s: Site, x: Operand, axis: int) -> Operand:
    """One at the first of the largest, zero elsewhere."""
    size = fixed(x.shape[axis], "the axis it is taken along")
    return s.emit("one_hot", s.inner("argmax", x, axis=axis), depth=size, axis=axis)


@onnx_op("Compress")
def compress(s: Site, x: Operand, condition: Operand, *, axis: int | None) -> Operand:
    """A gather, for a condition known when the model is made."""
    picked = np.flatnonzero(s.array(condition, "its condition")).astype(np.int64)
    if axis is None:
        x, axis = reshaped(s, x, (product(x.shape),), last=False), 0
    axis = axis_of(axis, x.rank)
    size = fixed(x.shape[axis], "the axis it picks from")
    if not picked.size or picked[-1] >= size:
        raise Unsupported("that picks nothing, or beyond the end")
    return s.emit("gather", x, s.const(picked, "indices"), axis=axis)
