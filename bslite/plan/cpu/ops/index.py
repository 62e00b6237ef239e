"""Picking and putting at computed places: dense operands, one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bslite.ops.index import REDUCTIONS
from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, contiguous, size_of
from bslite.plan.cpu.sharing import item_count, share_rows
from bslite.plan.cpu.step import CpuBuilder, untyped

CELL_CYCLES = 4.0  # to pick or put one cell
OVERFLOW = "{value} is beyond the 32 bits of an engine's integers"


def dense(b: AnyBuilder, shape: tuple[int, ...]) -> View:
    """A new row-major buffer."""
    return View(b.buffer(size_of(shape)).name, 0, shape, contiguous(shape))


def _operands(**views: View) -> dict[str, tuple[str, int]]:
    return {role: (view.buffer, view.offset) for role, view in views.items()}


def _lines(b: CpuBuilder, x: View, indices: View, axis: int) -> tuple[int, dict[str, Any], str]:
    """Number of items, cells and table of a kernel that goes line by line along ``axis``."""
    outer = [a for a in reversed(range(len(x.shape))) if a != axis]
    table = [cell for a in outer for cell in (indices.shape[a], 4 * x.strides[a], 4 * indices.strides[a])]
    count = indices.shape[axis]
    lines = size_of(indices.shape) // count
    each, items = share_rows(b.machine, lines, CELL_CYCLES * lines * (count + 2 * len(outer)))
    args = {
        "axes": len(outer), "lines": lines, "item_lines": each, "size": x.shape[axis], "count": count,
        "x_step": 4 * x.strides[axis], "i_step": 4 * indices.strides[axis],
    }  # fmt: skip
    return items, args, b.const("offsets", values=table)


def range_flag(b: AnyBuilder, layer: Layer, where: str) -> tuple[str, int]:
    """Where an index that is out of range is noted."""
    return b.flag(layer.name, f"index {{value}} is out of range for {where}")


def reduction_of(b: AnyBuilder, layer: Layer) -> dict[str, int]:
    """How updates meet what is there, and whether they are floats."""
    floats = int(b.dtypes[layer.name] == "float32")
    return {"reduction": REDUCTIONS.index(layer.node.attrs["reduction"]), "floats": floats}


@CPU.register("gather_elements")
def lower_gather_elements(b: CpuBuilder, layer: Layer) -> None:
    """Line by line along the axis."""
    x, indices = (b.flat(b.values[name]) for name in layer.node.inputs)
    axis = layer.node.attrs["axis"] % len(x.shape)
    y = dense(b, indices.shape)
    items, args, table = _lines(b, x, indices, axis)
    flag = range_flag(b, layer, f"axis {axis} of size {x.shape[axis]}")
    operands = {**_operands(x=x, indices=indices, y=y), "flag": flag, "table": (table, 0)}
    untyped(b, "gather_elements", items, args, operands, [x, indices], [y])
    b.alias(layer.name, y)


@CPU.register("scatter_elements")
def lower_scatter_elements(b: CpuBuilder, layer: Layer) -> None:
    """A copy of the input, then line by line along the axis."""
    x, indices, updates = (b.values[name] for name in layer.node.inputs)
    indices, updates = b.flat(indices), b.flat(updates)
    axis = layer.node.attrs["axis"] % len(x.shape)
    y = dense(b, x.shape)
    b.copy(x, y)
    items, args, table = _lines(b, y, indices, axis)
    operands = {
        **_operands(y=y, indices=indices, updates=updates),
        "flag": range_flag(b, layer, f"axis {axis} of size {x.shape[axis]}"),
        "overflow": b.flag(layer.name, OVERFLOW),
        "table": (table, 0),
    }
    args |= reduction_of(b, layer)
    untyped(b, "scatter_elements", items, args, operands, [y, indices, updates], [y])
    b.alias(layer.name, y)


def _coordinates(b: CpuBuilder, sizes: Sequence[int], strides: Sequence[int]) -> str:
    """Table of the axes that coordinates run along."""
    return b.const("offsets", values=[c for n, s in zip(sizes, strides, strict=True) for c in (n, 4 * s)])


@CPU.register("gather_nd")
def lower_gather_nd(b: CpuBuilder, layer: Layer) -> None:
    """Slice by slice."""
    x, indices = (b.flat(b.values[name]) for name in layer.node.inputs)
    batch, depth = layer.node.attrs["batch_dims"], indices.shape[-1]
    behind = batch + depth
    y = dense(b, b.shapes[layer.name])
    inner, count = size_of(x.shape[behind:]), size_of(indices.shape[:-1])
    each, items = share_rows(b.machine, count, count * (CELL_CYCLES * depth + inner))
    args = {
        "coordinates": depth, "inner": inner, "count": count, "item_count": each,
        "per_batch": size_of(indices.shape[batch:-1]), "batch_bytes": 4 * size_of(x.shape[batch:]),
    }  # fmt: skip
    table = _coordinates(b, x.shape[batch:behind], x.strides[batch:behind])
    flag = range_flag(b, layer, f"axes of sizes {list(x.shape[batch:behind])}")
    operands = {**_operands(x=x, indices=indices, y=y), "flag": flag, "table": (table, 0)}
    untyped(b, "gather_nd", items, args, operands, [x, indices], [y])
    b.alias(layer.name, y)


@CPU.register("scatter_nd")
def lower_scatter_nd(b: CpuBuilder, layer: Layer) -> None:
    """A copy of the input, then all slices in order, a part of each per item."""
    x, indices, updates = (b.values[name] for name in layer.node.inputs)
    indices, updates = b.flat(indices), b.flat(updates)
    depth = indices.shape[-1]
    y = dense(b, x.shape)
    b.copy(x, y)
    inner, count = size_of(x.shape[depth:]), size_of(indices.shape[:-1])
    parts = max(1, min(inner // b.machine.lanes, item_count(b.machine, float(count * inner))))
    args = {"coordinates": depth, "inner": inner, "count": count, "parts": parts, **reduction_of(b, layer)}
    operands = {
        **_operands(y=y, indices=indices, updates=updates),
        "flag": range_flag(b, layer, f"axes of sizes {list(x.shape[:depth])}"),
        "overflow": b.flag(layer.name, OVERFLOW),
        "table": (_coordinates(b, x.shape[:depth], y.strides[:depth]), 0),
    }
    untyped(b, "scatter_nd", parts, args, operands, [y, indices, updates], [y])
    b.alias(layer.name, y)


def topk_rows(b: AnyBuilder, layer: Layer) -> tuple[View, View]:
    """Input and output as dense rows along the axis; the output is recorded as the layer's value."""
    x, attrs = b.values[layer.node.inputs[0]], layer.node.attrs
    axis = attrs["axis"] % len(x.shape)
    order = [a for a in range(len(x.shape)) if a != axis] + [axis]
    x = b.flat(x.permute(order))
    y = dense(b, (*x.shape[:-1], attrs["k"]))
    b.alias(layer.name, y.permute([order.index(a) for a in range(len(order))]))
    return x, y


@CPU.register("topk")
def lower_topk(b: CpuBuilder, layer: Layer) -> None:
    """Row by row."""
    (x, y), attrs = topk_rows(b, layer), layer.node.attrs
    rows, length = size_of(x.shape[:-1]), x.shape[-1]
    kept = attrs["k"] * min(attrs["k"], 8 * attrs["k"].bit_length())  # moves: by insertion, or in a heap
    each, items = share_rows(b.machine, rows, CELL_CYCLES * rows * (length + kept))
    args = {
        "rows": rows, "item_rows": each, "length": length, "k": attrs["k"], "largest": int(attrs["largest"]),
        "floats": int(b.dtypes[layer.node.inputs[0]] == "float32"),
    }  # fmt: skip
    untyped(b, "topk", items, args, _operands(x=x, y=y), [x], [y])


def one_hot_numbers(layer: Layer) -> list[float]:
    """What stands off and on, as numbers of the output's dtype."""
    attrs = layer.node.attrs
    number = float if attrs["to"] == "float32" else int
    return [number(attrs["off"]), number(attrs["on"])]


def depth_flag(b: AnyBuilder, layer: Layer) -> tuple[str, int]:
    """Where an index out of range is noted, if that is an error."""
    return range_flag(b, layer, f"depth {layer.node.attrs['depth']}")


@CPU.register("one_hot")
def lower_one_hot(b: CpuBuilder, layer: Layer) -> None:
    """Line by line along the new axis."""
    x, attrs = b.flat(b.values[layer.node.inputs[0]]), layer.node.attrs
    axis = attrs["axis"] % (len(x.shape) + 1)
    y = dense(b, b.shapes[layer.name])
    places = size_of(x.shape)
    each, items = share_rows(b.machine, places, CELL_CYCLES * size_of(y.shape))
    off, on = one_hot_numbers(layer)
    args = {
        "places": places, "item_places": each, "depth": attrs["depth"], "inner": size_of(x.shape[axis:]),
        "on": on, "off": off, "strict": int(attrs["strict"]),
    }  # fmt: skip
    untyped(b, "one_hot", items, args, {**_operands(x=x, y=y), "flag": depth_flag(b, layer)}, [x], [y])
    b.alias(layer.name, y)
