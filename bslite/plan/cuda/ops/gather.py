"""Gathers of table rows, slices and elements by index."""

from bslite.errors import EngineError
from bslite.kernels.contracts.cuda.moves import Copy, CopyVariant
from bslite.kernels.contracts.cuda.places import Gather, GatherElements, GatherPairs, RowsAt
from bslite.kernels.contracts.launch import Threads
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import View, size_of
from bslite.plan.cuda.launch import CudaBuilder, launch
from bslite.plan.cuda.rows import block_threads
from bslite.plan.shared.places import axis_flag, range_flag

AXES = Copy.AXES
EACH = 4  # elements per thread


@CUDA.register("gather")
def lower_gather(b: CudaBuilder, layer: Layer) -> None:
    """Append a copy of the runs behind the axis from a dense table; it moves pairs where runs are even."""
    table, indices = (b.flat(b.values[name]) for name in layer.node.inputs)
    axis = layer.node.attrs["axis"] % len(table.shape)
    size = table.shape[axis]
    y = b.dense(b.shapes[layer.name])
    _gather_rows(
        b, table, indices, y, size, size_of(table.shape[axis + 1 :]), axis_flag(b, layer, axis, size)
    )
    b.alias(layer.name, y)


@CUDA.register("gather_nd")
def lower_gather_nd(b: CudaBuilder, layer: Layer) -> None:
    """Append launches that turn coordinates into row numbers and copy these rows."""
    x, indices = (b.flat(b.values[name]) for name in layer.node.inputs)
    batch = layer.node.attrs["batch_dims"]
    behind = batch + indices.shape[-1]
    flag = range_flag(b, layer, f"axes of sizes {list(x.shape[batch:behind])}")
    rows = rows_at(b, indices, x.shape[batch:behind], flag, size_of(indices.shape[batch:-1]))
    y = b.dense(b.shapes[layer.name])
    _gather_rows(b, x, rows, y, size_of(x.shape[:behind]), size_of(x.shape[behind:]), flag)
    b.alias(layer.name, y)


def _gather_rows(
    b: CudaBuilder, table: View, indices: View, y: View, size: int, inner: int, flag: Operand
) -> None:
    """Append a launch that copies rows of ``inner`` cells, picked from each ``size`` rows of the table."""
    callers = table.buffer in b.buffers and b.buffers[table.buffer].kind != "arena"  # may begin anywhere
    pairs = inner % 2 == 0 and table.offset % 2 == 0 and not callers
    each = 2 if pairs else 1
    total, threads = size_of(y.shape) // each, block_threads(b)
    kind = GatherPairs if pairs else Gather
    record = kind(
        table.start, indices.start, y.start, flag, total, size, inner // each, size_of(indices.shape)
    )
    grid = [-(-total // (threads * EACH))]
    launch(b, record, Threads(threads), grid, [threads], [table, indices], [y])


def rows_at(
    b: CudaBuilder,
    indices: View,
    sizes: tuple[int, ...],
    flag: Operand,
    per_batch: int,
    checked: bool = False,
) -> View:
    """Return the row number of each slice in a dense tensor. The last axis of ``indices`` holds coordinates
    along the axes ``sizes``; ``per_batch`` slices are in one batch. Indices that are row numbers are returned
    themselves, unless they must be ``checked`` and counted from 0.
    """
    count = size_of(indices.shape[:-1])
    if len(sizes) == 1 and per_batch == count and not checked:
        return View(indices.buffer, indices.offset, (count,), (1,))
    rows, threads = b.dense((count,)), block_threads(b)
    table = b.const(
        "cells", values=[n for d, size in enumerate(sizes) for n in (size, size_of(sizes[d + 1 :]))]
    )
    record = RowsAt(
        indices.start, Operand(table, 0), rows.start, flag, count, len(sizes), per_batch, size_of(sizes)
    )
    launch(b, record, Threads(threads), [-(-count // threads)], [threads], [indices], [rows])
    return rows


@CUDA.register("gather_elements")
def lower_gather_elements(b: CudaBuilder, layer: Layer) -> None:
    """Append a launch with a thread per element; x has stride 0 along the axis that indices pick along."""
    x, indices = b.values[layer.node.inputs[0]], b.flat(b.values[layer.node.inputs[1]])
    axis = layer.node.attrs["axis"] % len(x.shape)
    y = b.dense(indices.shape)
    still = tuple(0 if a == axis else s for a, s in enumerate(x.strides))
    sizes, runs = merged_axes(indices.shape, [y.strides, still], by=0)
    if len(sizes) > AXES or any(s < 0 for s in x.strides):
        raise EngineError(f"layer {layer.name!r}: {len(sizes)} separate axes; at most {AXES}")
    variant = CopyVariant(max(1, len(sizes)), block_threads(b))
    inward, (_, strides) = padded(sizes, runs, AXES)
    count = size_of(indices.shape)
    record = GatherElements(
        x.start, indices.start, y.start, axis_flag(b, layer, axis, x.shape[axis]), count, x.shape[axis],
        x_step=x.strides[axis], n=tuple(reversed(inward[1:])), x=tuple(reversed(strides)),
    )  # fmt: skip
    launch(b, record, variant, [-(-count // variant.threads)], [variant.threads], [x, indices], [y])
    b.alias(layer.name, y)
