"""Picking rows of a table, and resizing: copies and weighted sums whose sources are known or computed."""

from __future__ import annotations

from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import View, size_of
from bslite.plan.cpu.ops.index import dense, range_flag
from bslite.plan.cpu.ops.resize import axes_of
from bslite.plan.cpu.ops.upsample import bilinear_blends, nearest_sources
from bslite.plan.cuda.launch import CudaBuilder, untyped
from bslite.plan.cuda.ops.pad import fill
from bslite.plan.cuda.rows import block_threads
from bslite.plan.shared.resampling import outside, taps

EACH = 4  # elements of a thread
AXES = {0: "image", 2: "line", 3: "pixel"}


def _blocks(b: CudaBuilder, total: int) -> tuple[list[int], list[int], dict[str, int]]:
    """Grid, block and constants of a kernel with EACH elements to a thread."""
    threads = block_threads(b)
    return [-(-total // (threads * EACH))], [threads], {"threads": threads}


@CUDA.register("gather")
def lower_gather(b: CudaBuilder, layer: Layer) -> None:
    """Runs of what lies behind the axis, copied from a dense table; in pairs where they are even."""
    table, indices = (b.flat(b.values[name]) for name in layer.node.inputs)
    axis = layer.node.attrs["axis"] % len(table.shape)
    y = dense(b, b.shapes[layer.name])
    flag = range_flag(b, layer, f"axis {axis} of size {table.shape[axis]}")
    gather_rows(b, table, indices, y, table.shape[axis], size_of(table.shape[axis + 1 :]), flag)
    b.alias(layer.name, y)


def gather_rows(
    b: CudaBuilder, table: View, indices: View, y: View, size: int, inner: int, flag: tuple[str, int]
) -> None:
    """Append a launch that copies rows of ``inner`` cells, picked among each ``size`` of the dense table."""
    callers = table.buffer in b.buffers and b.buffers[table.buffer].kind != "arena"  # may begin anywhere
    pairs = inner % 2 == 0 and table.offset % 2 == 0 and not callers
    each = 2 if pairs else 1
    total = size_of(y.shape) // each
    operands = {
        "x": (table.buffer, table.offset), "indices": (indices.buffer, indices.offset), "y": (y.buffer, 0),
        "flag": flag,
    }  # fmt: skip
    numbers = {"total": total, "size": size, "inner": inner // each, "count": size_of(indices.shape)}
    grid, block, variant = _blocks(b, total)
    untyped(b, "gather_pairs" if pairs else "gather", variant, grid, block, numbers, operands,
           [table, indices], [y])  # fmt: skip


@CUDA.register("upsample")
def lower_upsample(b: CudaBuilder, layer: Layer) -> None:
    """A table of input rows, one of columns, and how much of each."""
    attrs = layer.node.attrs
    x, (y, home) = b.read(layer.node.inputs[0]), b.writable(layer.name, 1)
    bilinear = attrs["mode"] == "bilinear"
    operands = {"x": (x.buffer, x.offset), "y": (y.buffer, y.offset)}
    for role, axis, scale in zip(("row", "col"), (2, 3), attrs["scale"] or (None, None), strict=True):
        have, out = x.shape[axis], y.shape[axis]
        if bilinear:
            blends = bilinear_blends(have, out, scale, attrs["align_corners"])
            places = [i for blend in blends for i in (blend.low, blend.high)]
            parts = [p for blend in blends for p in (1 - blend.fraction, blend.fraction)]
        else:
            places = [i for i in nearest_sources(have, out, scale) for _ in range(2)]
            parts = [0.0]
        operands[f"{role}s"] = (b.const("cells", values=places), 0)
        operands[f"{role}_parts"] = (b.const("numbers", values=parts), 0)
    total = size_of(y.shape)
    grid, block, variant = _blocks(b, total)
    numbers = {"total": total, "channels": y.shape[1], "lines": y.shape[2], "pixels": y.shape[3]}
    for letter, view in (("x", x), ("y", y)):
        numbers |= {f"{letter}_{part}": view.strides[a] for a, part in AXES.items()}
    variant["bilinear"] = int(bilinear)
    untyped(b, "upsample", variant, grid, block, numbers, operands, [x], [y])
    if y is not home:
        b.copy(y, home)


@CUDA.register("resize")
def lower_resize(b: CudaBuilder, layer: Layer) -> None:
    """Axis by axis, the one that shrinks most first; then what lies beyond a crop."""
    view, order, places = axes_of(b, layer)
    attrs = layer.node.attrs
    for axis, place in places.items():
        table = taps(place, attrs)
        moves = attrs["mode"] == "nearest"
        if moves and [t[0].line for t in table] == list(range(view.shape[axis])):
            continue
        y = dense(b, (*view.shape[:axis], len(table), *view.shape[axis + 1 :]))
        total = size_of(y.shape)
        numbers = {
            "total": total, "size": view.shape[axis], "out": len(table),
            "inner": size_of(view.shape[axis + 1 :]), "taps": len(table[0]),
        }  # fmt: skip
        operands = {
            "x": (view.buffer, view.offset), "y": (y.buffer, 0),
            "lines": (b.const("cells", values=[tap.line for line in table for tap in line]), 0),
            "weights": (b.const("numbers", values=[tap.weight for line in table for tap in line]), 0),
        }  # fmt: skip
        grid, block, variant = _blocks(b, total)
        untyped(b, "resample", {**variant, "moves": int(moves)}, grid, block, numbers, operands, [view], [y])
        view = y
    if attrs["roi"]:
        for axis, place in places.items():
            for i in outside(place, attrs["coordinates"]):
                fill(b, view.slice(axis, i, i + 1), attrs["extrapolation"])
    b.alias(layer.name, view.permute([order.index(a) for a in range(len(order))]))
