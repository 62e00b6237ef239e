"""Scatters of cells and slices to computed places: rows of a dense tensor.

Threads that own cells look through all updates of their line. An estimate is some 20 cycles for each update
(five instructions, of four warps to a scheduler), however many cells there are. Sorting takes ten launches or
so and reads each update some 20 times: it is cheaper from tens of thousands of updates on, where one sort
serves all lines.
"""

from bslite.errors import EngineError
from bslite.kernels.contracts.cuda.moves import Copy
from bslite.kernels.contracts.cuda.order import OrderVariant
from bslite.kernels.contracts.cuda.places import Scatter, ScatterSorted, ScatterSortedVariant, ScatterVariant
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import View, size_of
from bslite.plan.cuda.launch import CudaBuilder, launch
from bslite.plan.cuda.ops.gather import rows_at
from bslite.plan.cuda.ops.select import sort_rows
from bslite.plan.cuda.rows import block_threads, power_above
from bslite.plan.shared.places import (
    axis_flag,
    is_float,
    overflow_flag,
    put_into_copy,
    range_flag,
    reduction_of,
)

AXES = Copy.AXES  # axes of lines that the kernel walks
ACROSS = 32  # lines side by side in a block, at most
BLOCKS = 2  # blocks per SM that share the cells of few lines


@CUDA.register("scatter_elements")
def lower_scatter_elements(b: CudaBuilder, layer: Layer) -> None:
    """Append a copy of the input, then the scatter of lines along the axis."""
    y, indices, updates = put_into_copy(b, layer)
    axis = layer.node.attrs["axis"] % len(y.shape)
    size, count = y.shape[axis], indices.shape[axis]
    flag = axis_flag(b, layer, axis, size)
    if size_of(y.shape) == size and count >= b.tuning.sorted_updates:
        column = View(indices.buffer, indices.offset, (count, 1), (1, 1))
        _scatter_sorted(b, layer, y, rows_at(b, column, (size,), flag, count, True), updates, 1)
        return
    outer = [a for a in range(len(y.shape)) if a != axis]
    steps = (y.strides[axis], indices.strides[axis], updates.strides[axis])
    _scatter(
        b, layer, y, indices, updates, flag, lines=tuple(indices.shape[a] for a in outer),
        to=tuple(y.strides[a] for a in outer), source=tuple(updates.strides[a] for a in outer), size=size,
        count=count, steps=steps, own=1,
    )  # fmt: skip


@CUDA.register("scatter_nd")
def lower_scatter_nd(b: CudaBuilder, layer: Layer) -> None:
    """Append a copy of the input, then the scatter of rows: lines run along rows and share their indices."""
    y, indices, updates = put_into_copy(b, layer)
    depth, count = indices.shape[-1], size_of(indices.shape[:-1])
    inner, many = size_of(y.shape[depth:]), count >= b.tuning.sorted_updates
    flag = range_flag(b, layer, f"axes of sizes {list(y.shape[:depth])}")
    rows = rows_at(b, indices, y.shape[:depth], flag, count, checked=many)
    if many:
        _scatter_sorted(b, layer, y, rows, updates, inner)
        return
    _scatter(
        b, layer, y, rows, updates, flag, lines=(inner,), to=(1,), source=(1,), size=size_of(y.shape[:depth]),
        count=count, steps=(inner, 1, inner), own=0,
    )  # fmt: skip


def _scatter_sorted(b: CudaBuilder, layer: Layer, y: View, rows: View, updates: View, inner: int) -> None:
    """Append a sort of the updates by row number, counted from 0, and the launch that applies them."""
    count, threads = size_of(rows.shape), block_threads(b)
    ordered = sort_rows(b, rows, 1, count, count, OrderVariant(threads, largest=0, floats=0))
    total = count * inner
    record = ScatterSorted(
        y.start, ordered.start, updates.start, overflow_flag(b, layer), total, count, inner
    )
    variant = ScatterSortedVariant(threads, reduction_of(layer), int(is_float(b, layer.name)))
    launch(b, record, variant, [-(-total // threads)], [threads], [y, ordered, updates], [y])


def _scatter(
    b: CudaBuilder,
    layer: Layer,
    y: View,
    indices: View,
    updates: View,
    flag: Operand,
    lines: tuple[int, ...],
    to: tuple[int, ...],
    source: tuple[int, ...],
    size: int,
    count: int,
    steps: tuple[int, int, int],
    own: int,
) -> None:
    """Append the launch. ``lines``: how many there are along each axis; ``to`` and ``source``: their strides
    in y and in the updates; `Scatter` explains the rest. As many threads as the GPU holds share few lines.
    """
    sizes, runs = merged_axes(lines, [source, to], by=0)
    if len(sizes) > AXES:
        raise EngineError(f"layer {layer.name!r}: lines along {len(sizes)} separate axes; at most {AXES}")
    number, threads = size_of(lines), block_threads(b)
    inward, (us, ys) = padded(sizes, runs, AXES)
    across = min(ACROSS, threads, power_above(number))
    down, blocks = threads // across, -(-number // across)
    parts = min(-(-size // down), max(1, BLOCKS * b.machine.sms // max(1, blocks)))
    share = -(-size // (down * parts))
    parts = -(-size // (down * share))
    variant = ScatterVariant(
        threads,
        across,
        max(1, len(sizes)),
        int(share == 1),
        reduction_of(layer),
        int(is_float(b, layer.name)),
    )
    y_step, i_step, u_step = steps
    record = Scatter(
        y.start, indices.start, updates.start, flag, overflow_flag(b, layer), number, size, count, share,
        y_step, i_step, u_step, own, n=tuple(reversed(inward[1:])), u=tuple(reversed(us)),
        y=tuple(reversed(ys)),
    )  # fmt: skip
    launch(b, record, variant, [blocks, parts], [threads], [y, indices, updates], [y])
