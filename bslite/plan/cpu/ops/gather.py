"""Picking by computed indices, and change of dtype."""

from __future__ import annotations

from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, contiguous, size_of
from bslite.plan.cpu.sharing import item_count
from bslite.plan.cpu.step import CpuBuilder, untyped


@CPU.register("gather")
def lower_gather(b: CpuBuilder, layer: Layer) -> None:
    """Runs of what lies behind the axis, copied from a dense table."""
    table, indices = (b.flat(b.values[name]) for name in layer.node.inputs)
    axis = layer.node.attrs["axis"] % len(table.shape)
    shape = b.shapes[layer.name]
    size, count = table.shape[axis], size_of(indices.shape)
    outer, inner = size_of(table.shape[:axis]), size_of(table.shape[axis + 1 :])
    y = View(b.buffer(size_of(shape)).name, 0, shape, contiguous(shape))
    parts = max(1, min(count, item_count(b.machine, 0.5 * size_of(shape) + 8.0 * outer * count) // outer))
    flag = b.flag(layer.name, f"index {{value}} is out of range for axis {axis} of size {size}")
    operands = {
        "x": (table.buffer, table.offset), "indices": (indices.buffer, indices.offset), "y": (y.buffer, 0),
        "flag": flag,
    }  # fmt: skip
    args = {"size": size, "inner": inner, "count": count, "parts": parts}
    untyped(b, "gather", outer * parts, args, operands, [table, indices], [y])
    b.alias(layer.name, y)
