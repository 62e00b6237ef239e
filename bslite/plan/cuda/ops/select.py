"""Top-k along an axis, one-hot encoding, and lengths of sequences."""

from bslite.kernels.contracts.cuda.order import (
    MergeVariant,
    OneHot,
    OneHotVariant,
    OrderVariant,
    TilesVariant,
    TopKMerge,
    TopKShort,
    TopKTiles,
)
from bslite.kernels.contracts.cuda.places import SequenceLengths, SequenceLengthsVariant
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import View, size_of
from bslite.plan.cuda.launch import CudaBuilder, launch
from bslite.plan.cuda.rows import block_threads, power_above
from bslite.plan.shared.places import depth_flag, is_float, length_checks, one_hot_numbers, topk_rows

SHORT = 128  # elements of a row, at most, whose kernel compares every pair


@CUDA.register("topk")
def lower_topk(b: CudaBuilder, layer: Layer) -> None:
    """Append a top-k: short rows compare every pair; longer ones sort tiles and merge their first k."""
    (x, y), attrs = topk_rows(b, layer), layer.node.attrs
    rows, length, k = size_of(x.shape[:-1]), x.shape[-1], attrs["k"]
    threads = block_threads(b)
    order = OrderVariant(threads, int(attrs["largest"]), int(is_float(b, layer.node.inputs[0])))
    if length <= min(SHORT, threads):
        grid = [-(-rows // (threads // length))]
        launch(b, TopKShort(x.start, y.start, rows, length, k), order, grid, [threads], [x], [y])
        return
    sort_rows(b, x, rows, length, k, order, y)


def sort_rows(
    b: CudaBuilder, x: View, rows: int, length: int, k: int, order: OrderVariant, y: View | None = None
) -> View:
    """Append the launches that find the first ``k`` of dense rows in ``order``, as indices in y or, without
    y, as two cells each, upper half and index, in the returned memory. Tiles are sorted, then merged.
    """
    threads = order.threads
    tile = min(b.tuning.sorted_each * threads, power_above(length))
    runs, kept = -(-length // tile), min(k, tile)
    made = y if runs == 1 and y is not None else b.dense((2 * rows * runs * kept,))
    variant = TilesVariant(threads, order.largest, order.floats, tile, whole=int(made is y))
    record = TopKTiles(x.start, made.start, length, runs, kept)
    launch(b, record, variant, [rows * runs], [threads], [x], [made])
    while runs > 1:
        fan = min(runs, next((fan for most, fan in b.tuning.merged_runs if kept <= most), 2))
        groups, after = -(-runs // fan), min(k, fan * kept)
        total = rows * groups * fan * kept
        merged = y if groups == 1 and y is not None else b.dense((2 * rows * groups * after,))
        merging = TopKMerge(made.start, merged.start, total, runs, fan, groups, kept, after)
        whole = MergeVariant(threads, int(merged is y))
        launch(b, merging, whole, [-(-total // threads)], [threads], [made], [merged])
        made, runs, kept = merged, groups, after
    return made


@CUDA.register("one_hot")
def lower_one_hot(b: CudaBuilder, layer: Layer) -> None:
    """Append a launch with a thread per cell of the output."""
    x, attrs = b.flat(b.values[layer.node.inputs[0]]), layer.node.attrs
    axis = attrs["axis"] % (len(x.shape) + 1)
    y, threads = b.dense(b.shapes[layer.name]), block_threads(b)
    total = size_of(y.shape)
    values = b.const("numbers" if attrs["to"] == "float32" else "cells", values=list(one_hot_numbers(layer)))
    record = OneHot(
        x.start, y.start, Operand(values, 0), depth_flag(b, layer), total, attrs["depth"],
        size_of(x.shape[axis:]),
    )  # fmt: skip
    variant = OneHotVariant(threads, int(attrs["strict"]))
    launch(b, record, variant, [-(-total // threads)], [threads], [x], [y])
    b.alias(layer.name, y)


@CUDA.register("sequence_lengths")
def lower_sequence_lengths(b: CudaBuilder, layer: Layer) -> None:
    """Append a launch of one thread."""
    c, in_order = length_checks(b, layer), int(layer.node.attrs["sorted"])
    record = SequenceLengths(
        c.x.start, c.y.start, c.range_flag, c.order_flag, c.whole_flag, c.x.shape[0], c.most, c.steps
    )
    launch(b, record, SequenceLengthsVariant(in_order), [1], [1], [c.x], [c.y])
