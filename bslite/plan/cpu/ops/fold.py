"""Lowering of `fold`: one step that sums columns into windows."""

from bslite.kernels.contracts.cpu.moves import Fold, FoldLines
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, size_of
from bslite.plan.core.windows import volume
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.sharing import item_count, share_rows
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.shared.fold import fold_axes

TAP_CYCLES = 2.0
LINE_CYCLES = 6.0  # of a register of taps
LEAST_COLS = 256  # of a piece: a window's taps are found for each


@CPU.register("fold")
def lower_fold(b: CpuBuilder, layer: Layer) -> None:
    """Lower `fold`; an item is a run of lines of the image, or of pieces of them if they are few."""
    x, y = b.values[layer.node.inputs[0]], b.write(layer.name)
    attrs = layer.node.attrs
    if len(y.shape) == 3 and attrs["kernel"][0] >= b.machine.lanes and attrs["dilation"] == (1,):
        _lines_step(b, layer, b.arranged(x, 1, exact=True), y)
        return
    x = b.flat(x)
    lines, width = size_of(y.shape[:-1]), y.shape[-1]
    cycles = TAP_CYCLES * size_of(x.shape)
    wanted = -(-item_count(b.machine, cycles) // lines)
    cols = min(width, Fold.MOST_COLS, max(LEAST_COLS, -(-width // wanted)))
    pieces = lines * -(-width // cols)
    item_pieces, items = share_rows(b.machine, pieces, cycles)
    by_role = (tuple(numbers) for numbers in zip(*fold_axes(layer), strict=True))
    strides = in_bytes(volume(y).strides)
    record = Fold(x.start, y.start, strides, pieces, item_pieces, cols, y.shape[1], *by_role)
    step(b, record, items, [x], [y], scratch=2 * cols)


def _lines_step(b: CpuBuilder, layer: Layer, x: View, home: View) -> None:
    """Append the sums of windows of lines, each of whose taps lie side by side."""
    (_, _, axis), y = fold_axes(layer), home
    if y.strides[2] != 1 and y.shape[2] != 1:
        y = b.dense(home.shape)
    images, channels, size = y.shape
    cycles = LINE_CYCLES * size_of(x.shape) / b.machine.lanes
    wanted = -(-item_count(b.machine, cycles) // (images * channels))
    cols = min(size, Fold.MOST_COLS, max(LEAST_COLS, -(-size // wanted)))
    pieces = images * channels * -(-size // cols)
    item_pieces, items = share_rows(b.machine, pieces, cycles)
    strides = in_bytes((x.strides[0], axis.k * x.strides[1], x.strides[2], y.strides[0], y.strides[1]))
    record = FoldLines(
        x.start, y.start, *strides, images * channels, channels, item_pieces, cols, size,
        windows=axis.w, taps=axis.k, step=axis.s, before=axis.p,
    )  # fmt: skip
    step(b, record, items, [x], [y], scratch=2 * (cols + b.machine.lanes))
    if y is not home:
        b.copy(y, home)
