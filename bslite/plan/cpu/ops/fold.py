"""Lowering of `fold`: one step that sums columns into windows."""

from bslite.kernels.contracts.cpu.moves import Fold
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import size_of
from bslite.plan.core.windows import volume
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.sharing import item_count, share_rows
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.shared.fold import fold_axes

TAP_CYCLES = 2.0
LEAST_COLS = 256  # of a piece: a window's taps are found for each


@CPU.register("fold")
def lower_fold(b: CpuBuilder, layer: Layer) -> None:
    """Lower `fold`; an item is a run of lines of the image, or of pieces of them if they are few."""
    x, y = b.flat(b.values[layer.node.inputs[0]]), b.write(layer.name)
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
