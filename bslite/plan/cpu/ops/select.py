"""Lowerings of `topk`, `one_hot` and the check of sequence lengths."""

from bslite.kernels.contracts.cpu.places import OneHot, SequenceLengths, TopK
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import size_of
from bslite.plan.cpu.ops.index import CELL_CYCLES
from bslite.plan.cpu.sharing import share_rows
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.shared.places import depth_flag, is_float, length_checks, one_hot_numbers, topk_rows


@CPU.register("topk")
def lower_topk(b: CpuBuilder, layer: Layer) -> None:
    """Lower `topk`, row by row."""
    (x, y), attrs = topk_rows(b, layer), layer.node.attrs
    rows, length = size_of(x.shape[:-1]), x.shape[-1]
    kept = attrs["k"] * min(attrs["k"], 8 * attrs["k"].bit_length())  # moves: by insertion, or in a heap
    each, items = share_rows(b.machine, rows, CELL_CYCLES * rows * (length + kept))
    floats = is_float(b, layer.node.inputs[0])
    step(b, TopK(x.start, y.start, rows, each, length, attrs["k"], attrs["largest"], floats), items, [x], [y])


@CPU.register("one_hot")
def lower_one_hot(b: CpuBuilder, layer: Layer) -> None:
    """Lower `one_hot`, line by line along the new axis."""
    x, attrs = b.flat(b.values[layer.node.inputs[0]]), layer.node.attrs
    axis = attrs["axis"] % (len(x.shape) + 1)
    y = b.row_major(layer.name)
    places = size_of(x.shape)
    each, items = share_rows(b.machine, places, CELL_CYCLES * size_of(y.shape))
    off, on = one_hot_numbers(layer)
    record = OneHot(
        x.start, y.start, depth_flag(b, layer), places, each, attrs["depth"], size_of(x.shape[axis:]), on,
        off, attrs["strict"],
    )  # fmt: skip
    step(b, record, items, [x], [y])


@CPU.register("sequence_lengths")
def lower_sequence_lengths(b: CpuBuilder, layer: Layer) -> None:
    """Lower the check of sequence lengths: one item."""
    c = length_checks(b, layer)
    record = SequenceLengths(
        c.x.start, c.y.start, c.range_flag, c.order_flag, c.whole_flag, c.x.shape[0], c.most, c.steps,
        layer.node.attrs["sorted"],
    )  # fmt: skip
    step(b, record, 1, [c.x], [c.y])
