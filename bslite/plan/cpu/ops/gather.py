"""Picking by computed indices, and change of dtype."""

from __future__ import annotations

from bslite.errors import EngineError
from bslite.passes import Layer
from bslite.plan.core.loops import into_items, merged_axes, split_for_items
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, contiguous, size_of
from bslite.plan.cpu.ops.move import AXES
from bslite.plan.cpu.sharing import item_count
from bslite.plan.cpu.step import CpuBuilder, untyped

#: (from a float?, to what?) -> mode of the "cast" kernel; what is not listed has the same cells.
MODES = {
    ("float32", "int"): 0,
    ("int", "float32"): 1,
    ("bool", "float32"): 1,
    ("float32", "bool"): 2,
    ("int", "bool"): 3,
}


CAST_FAILS = "a number of its input cannot be made {to}"


def cast_mode(have: str, to: str) -> int | None:
    """The mode of a cast; None where the cells are the same."""
    return MODES.get((_family(have), _family(to)))


def _family(dtype: str) -> str:
    return "int" if dtype in ("int64", "int32") else dtype


@CPU.register("cast")
def lower_cast(b: CpuBuilder, layer: Layer) -> None:
    """Another view of the same memory where the cells are the same, else one step."""
    source, to = layer.node.inputs[0], layer.node.attrs["to"]
    x = b.values[source]
    mode = cast_mode(b.dtypes[source], to)
    if mode is None:
        b.alias(layer.name, x)
        return
    y = b.write(layer.name)
    sizes, runs = merged_axes(y.shape, [x.strides, y.strides], by=1)
    if not sizes:
        sizes, runs = [1], [[1], [1]]
    sizes, runs = split_for_items(sizes, runs, 2 * b.machine.threads, 1 << 14)
    if len(sizes) > AXES:
        raise EngineError(f"layer {layer.name!r}: a cast over {len(sizes)} separate axes; at most {AXES}")
    sizes, (xs, ys) = into_items(sizes, runs, item_count(b.machine, 4.0 * size_of(y.shape)), AXES)
    args = {f"n{i}": n for i, n in enumerate(sizes)} | {"mode": mode}
    args |= {f"x{i}": 4 * s for i, s in enumerate(xs)} | {f"y{i}": 4 * s for i, s in enumerate(ys)}
    flag = b.flag(layer.name, CAST_FAILS.format(to=to))
    operands = {"x": (x.buffer, x.offset), "y": (y.buffer, y.offset), "flag": flag}
    untyped(b, "cast", sizes[0] * sizes[1], args, operands, [x], [y])


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
