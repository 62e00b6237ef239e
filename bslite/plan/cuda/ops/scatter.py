"""Picking slices, and putting cells and slices, at computed places: rows of a dense tensor.

Threads that own cells look through all updates of their line: some 20 cycles for each update (reckoned: five
instructions, of four warps to a scheduler), however many cells there are. Sorting is ten launches or so and
some 20 readings of an update: less, from tens of thousands on, where one sort serves all lines.
"""

from __future__ import annotations

from bslite.errors import EngineError
from bslite.passes import Layer
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import View, size_of
from bslite.plan.cpu.ops.index import OVERFLOW, dense, range_flag, reduction_of
from bslite.plan.cuda.launch import CudaBuilder, untyped
from bslite.plan.cuda.ops.gather import gather_rows
from bslite.plan.cuda.ops.select import sort_rows
from bslite.plan.cuda.rows import block_threads, power_above

AXES = 6  # of lines, in the kernel
ACROSS = 32  # lines side by side in a block at most
BLOCKS = 2  # of an SM, that share the cells of few lines
SORTED = (
    1 << 15
)  # updates that are sorted by their rows, if all lines have the same; fewer are looked through


@CUDA.register("gather_nd")
def lower_gather_nd(b: CudaBuilder, layer: Layer) -> None:
    """Coordinates as row numbers, then rows."""
    x, indices = (b.flat(b.values[name]) for name in layer.node.inputs)
    batch = layer.node.attrs["batch_dims"]
    behind = batch + indices.shape[-1]
    flag = range_flag(b, layer, f"axes of sizes {list(x.shape[batch:behind])}")
    rows = _rows(b, indices, x.shape[batch:behind], flag, size_of(indices.shape[batch:-1]))
    y = dense(b, b.shapes[layer.name])
    gather_rows(b, x, rows, y, size_of(x.shape[:behind]), size_of(x.shape[behind:]), flag)
    b.alias(layer.name, y)


def _rows(
    b: CudaBuilder,
    indices: View,
    sizes: tuple[int, ...],
    flag: tuple[str, int],
    per_batch: int,
    checked: bool = False,
) -> View:
    """Which row of a dense tensor each slice is: of the axes ``sizes`` that the coordinates along the last
    axis of ``indices`` go along, ``per_batch`` in the same batch. The index itself where that is it, unless
    it must be ``checked``, and counted from 0.
    """
    count = size_of(indices.shape[:-1])
    if len(sizes) == 1 and per_batch == count and not checked:
        return View(indices.buffer, indices.offset, (count,), (1,))
    rows, threads = dense(b, (count,)), block_threads(b)
    table = [n for d, size in enumerate(sizes) for n in (size, size_of(sizes[d + 1 :]))]
    numbers = {
        "count": count, "coordinates": len(sizes), "per_batch": per_batch, "batch_rows": size_of(sizes),
    }  # fmt: skip
    operands = {
        "indices": (indices.buffer, indices.offset), "table": (b.const("cells", values=table), 0),
        "rows": (rows.buffer, 0), "flag": flag,
    }  # fmt: skip
    untyped(b, "rows_at", {"threads": threads}, [-(-count // threads)], [threads], numbers, operands,
           [indices], [rows])  # fmt: skip
    return rows


@CUDA.register("scatter_elements")
def lower_scatter_elements(b: CudaBuilder, layer: Layer) -> None:
    """A copy of the input, then lines along the axis."""
    x, indices, updates = (b.values[name] for name in layer.node.inputs)
    indices, updates = b.flat(indices), b.flat(updates)
    axis = layer.node.attrs["axis"] % len(x.shape)
    size, count = x.shape[axis], indices.shape[axis]
    y = dense(b, x.shape)
    b.copy(x, y)
    b.alias(layer.name, y)
    flag = range_flag(b, layer, f"axis {axis} of size {size}")
    if size_of(x.shape) == size and count >= SORTED:
        column = View(indices.buffer, indices.offset, (count, 1), (1, 1))
        _scatter_sorted(b, layer, y, _rows(b, column, (size,), flag, count, True), updates, 1)
        return
    outer = [a for a in range(len(x.shape)) if a != axis]
    _scatter(
        b, layer, y, indices, updates, flag, lines=tuple(indices.shape[a] for a in outer),
        to=tuple(y.strides[a] for a in outer), source=tuple(updates.strides[a] for a in outer),
        numbers={
            "size": size, "count": count, "y_step": y.strides[axis], "i_step": indices.strides[axis],
            "u_step": updates.strides[axis], "own": 1,
        },
    )  # fmt: skip


@CUDA.register("scatter_nd")
def lower_scatter_nd(b: CudaBuilder, layer: Layer) -> None:
    """A copy of the input, then rows: a line goes along their numbers, and all have the same indices."""
    x, indices, updates = (b.values[name] for name in layer.node.inputs)
    indices, updates = b.flat(indices), b.flat(updates)
    depth, count = indices.shape[-1], size_of(indices.shape[:-1])
    y = dense(b, x.shape)
    b.copy(x, y)
    b.alias(layer.name, y)
    inner = size_of(x.shape[depth:])
    flag = range_flag(b, layer, f"axes of sizes {list(x.shape[:depth])}")
    rows = _rows(b, indices, x.shape[:depth], flag, count, checked=count >= SORTED)
    if count >= SORTED:
        _scatter_sorted(b, layer, y, rows, updates, inner)
        return
    _scatter(
        b, layer, y, rows, updates, flag, lines=(inner,), to=(1,), source=(1,),
        numbers={
            "size": size_of(x.shape[:depth]), "count": count, "y_step": inner, "i_step": 1, "u_step": inner,
            "own": 0,
        },
    )  # fmt: skip


def _scatter_sorted(b: CudaBuilder, layer: Layer, y: View, rows: View, updates: View, inner: int) -> None:
    """Append a sort of the updates by their rows, counted from 0, and the launch that goes through them."""
    count, threads = size_of(rows.shape), block_threads(b)
    ordered = sort_rows(b, rows, 1, count, count, {"threads": threads, "largest": 0, "floats": 0})
    total = count * inner
    operands = {
        "y": (y.buffer, y.offset), "sorted": (ordered.buffer, 0), "updates": (updates.buffer, updates.offset),
        "overflow": b.flag(layer.name, OVERFLOW),
    }  # fmt: skip
    untyped(
        b, "scatter_sorted", {"threads": threads, **reduction_of(b, layer)}, [-(-total // threads)],
        [threads], {"total": total, "count": count, "inner": inner}, operands, [y, ordered, updates], [y],
    )  # fmt: skip


def _scatter(
    b: CudaBuilder,
    layer: Layer,
    y: View,
    indices: View,
    updates: View,
    flag: tuple[str, int],
    lines: tuple[int, ...],
    to: tuple[int, ...],
    source: tuple[int, ...],
    numbers: dict[str, int],
) -> None:
    """Append the launch. ``lines``: how many there are along each axis, ``to`` and ``source`` their strides
    in y and in the updates. Few lines are shared by as many threads as the GPU holds.
    """
    sizes, runs = merged_axes(lines, [source, to], by=0)
    if len(sizes) > AXES:
        raise EngineError(f"layer {layer.name!r}: lines along {len(sizes)} separate axes; at most {AXES}")
    count, threads = size_of(lines), block_threads(b)
    axes = max(1, len(sizes))
    inward, (us, ys) = padded(sizes, runs, AXES)
    across = min(ACROSS, threads, power_above(count))
    down, blocks = threads // across, -(-count // across)
    parts = min(-(-numbers["size"] // down), max(1, BLOCKS * b.machine.sms // max(1, blocks)))
    share = -(-numbers["size"] // (down * parts))
    parts = -(-numbers["size"] // (down * share))
    variant = {
        "threads": threads, "across": across, "axes": axes, "alone": int(share == 1),
        **reduction_of(b, layer),
    }  # fmt: skip
    places = {f"n{i}": n for i, n in enumerate(reversed(inward[1:]))}
    for letter, run in (("u", us), ("y", ys)):
        places |= {f"{letter}{i}": s for i, s in enumerate(reversed(run))}
    operands = {
        "y": (y.buffer, y.offset), "indices": (indices.buffer, indices.offset),
        "updates": (updates.buffer, updates.offset), "flag": flag, "overflow": b.flag(layer.name, OVERFLOW),
    }  # fmt: skip
    untyped(
        b, "scatter", variant, [blocks, parts], [threads],
        {**numbers, **places, "lines": count, "share": share}, operands, [y, indices, updates], [y],
    )  # fmt: skip
