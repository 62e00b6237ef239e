"""Lowerings of gathers and scatters: dense operands, one step."""

from collections.abc import Sequence

from bslite.kernels.contracts.cpu.places import (
    Coordinates,
    Gather,
    GatherElements,
    GatherND,
    Lines,
    Put,
    ScatterElements,
    ScatterND,
)
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, size_of
from bslite.plan.cpu.sharing import item_count, share_rows
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.shared.places import (
    axis_flag,
    is_float,
    overflow_flag,
    put_into_copy,
    range_flag,
    reduction_of,
)

CELL_CYCLES = 4.0  # to read or write one cell at a computed place


@CPU.register("gather")
def lower_gather(b: CpuBuilder, layer: Layer) -> None:
    """Lower `gather`: copies runs of the axes behind the axis from a dense table."""
    x, indices = (b.flat(b.values[name]) for name in layer.node.inputs)
    axis = layer.node.attrs["axis"] % len(x.shape)
    y = b.row_major(layer.name)
    count, outer = size_of(indices.shape), size_of(x.shape[:axis])
    cycles = 0.5 * size_of(y.shape) + 8.0 * outer * count
    parts = max(1, min(count, item_count(b.machine, cycles) // outer))
    record = Gather(
        x.start, indices.start, y.start, axis_flag(b, layer, axis, x.shape[axis]), size=x.shape[axis],
        inner=size_of(x.shape[axis + 1 :]), count=count, parts=parts,
    )  # fmt: skip
    step(b, record, outer * parts, [x, indices], [y])


def _lines(b: CpuBuilder, x: View, indices: View, axis: int) -> tuple[int, Lines]:
    """The number of items, and the lines, of a kernel that goes line by line along ``axis``."""
    outer = [a for a in reversed(range(len(x.shape))) if a != axis]
    table = [cell for a in outer for cell in (indices.shape[a], 4 * x.strides[a], 4 * indices.strides[a])]
    count = indices.shape[axis]
    lines = size_of(indices.shape) // count
    each, items = share_rows(b.machine, lines, CELL_CYCLES * lines * (count + 2 * len(outer)))
    return items, Lines(
        Operand(b.const("offsets", values=table), 0), len(outer), lines, each, size=x.shape[axis],
        count=count, x_step=4 * x.strides[axis], i_step=4 * indices.strides[axis],
    )  # fmt: skip


def _put(b: CpuBuilder, layer: Layer, updates: View) -> Put:
    """The record of how the updates change the cells that they meet."""
    return Put(updates.start, overflow_flag(b, layer), reduction_of(layer), is_float(b, layer.name))


@CPU.register("gather_elements")
def lower_gather_elements(b: CpuBuilder, layer: Layer) -> None:
    """Lower `gather_elements`, line by line along the axis."""
    x, indices = (b.flat(b.values[name]) for name in layer.node.inputs)
    axis = layer.node.attrs["axis"] % len(x.shape)
    y = b.row_major(layer.name)
    items, lines = _lines(b, x, indices, axis)
    flag = axis_flag(b, layer, axis, x.shape[axis])
    step(b, GatherElements(x.start, indices.start, y.start, flag, lines), items, [x, indices], [y])


@CPU.register("scatter_elements")
def lower_scatter_elements(b: CpuBuilder, layer: Layer) -> None:
    """Lower `scatter_elements`: a copy of the input, then line by line along the axis."""
    y, indices, updates = put_into_copy(b, layer)
    axis = layer.node.attrs["axis"] % len(y.shape)
    items, lines = _lines(b, y, indices, axis)
    flag = axis_flag(b, layer, axis, y.shape[axis])
    record = ScatterElements(y.start, indices.start, flag, lines, _put(b, layer, updates))
    step(b, record, items, [y, indices, updates], [y])


def _coordinates(b: CpuBuilder, indices: View, sizes: Sequence[int], steps: Sequence[int]) -> Coordinates:
    """Coordinates along axes of these sizes and strides; the slices are as long as the last stride."""
    table = b.const("offsets", values=[c for n, s in zip(sizes, steps, strict=True) for c in (n, 4 * s)])
    count, depth = size_of(indices.shape[:-1]), indices.shape[-1]
    return Coordinates(Operand(table, 0), indices.start, depth, steps[-1], count)


@CPU.register("gather_nd")
def lower_gather_nd(b: CpuBuilder, layer: Layer) -> None:
    """Lower `gather_nd`, slice by slice."""
    x, indices = (b.flat(b.values[name]) for name in layer.node.inputs)
    batch, depth = layer.node.attrs["batch_dims"], indices.shape[-1]
    along = slice(batch, batch + depth)
    y = b.row_major(layer.name)
    at = _coordinates(b, indices, x.shape[along], x.strides[along])
    each, items = share_rows(b.machine, at.count, at.count * (CELL_CYCLES * depth + at.inner))
    record = GatherND(
        x.start, y.start, range_flag(b, layer, f"axes of sizes {list(x.shape[along])}"), at,
        per_batch=size_of(indices.shape[batch:-1]), batch_bytes=4 * size_of(x.shape[batch:]), item_count=each,
    )  # fmt: skip
    step(b, record, items, [x, indices], [y])


@CPU.register("scatter_nd")
def lower_scatter_nd(b: CpuBuilder, layer: Layer) -> None:
    """Lower `scatter_nd`: a copy of the input, then all slices in order, a part of each per item."""
    y, indices, updates = put_into_copy(b, layer)
    depth = indices.shape[-1]
    at = _coordinates(b, indices, y.shape[:depth], y.strides[:depth])
    # Every part goes through all indices.
    most = min(at.inner // b.machine.lanes, 2 * b.machine.threads)
    parts = max(1, min(most, item_count(b.machine, float(at.count * at.inner))))
    flag = range_flag(b, layer, f"axes of sizes {list(y.shape[:depth])}")
    record = ScatterND(y.start, flag, at, parts, _put(b, layer, updates))
    step(b, record, parts, [y, indices, updates], [y])
