"""Lowering of `fold`: one step that sums columns into windows."""

import math

from bslite.kernels.contracts.cpu.moves import Fold
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import size_of
from bslite.plan.core.windows import volume
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.sharing import share_rows
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.shared.fold import fold_axes

TAP_CYCLES = 4.0


@CPU.register("fold")
def lower_fold(b: CpuBuilder, layer: Layer) -> None:
    """Lower `fold`; an item is a run of lines of the image."""
    x, y = b.flat(b.values[layer.node.inputs[0]]), b.write(layer.name)
    lines = size_of(y.shape[:-1])
    cycles = TAP_CYCLES * size_of(y.shape) * math.prod(layer.node.attrs["kernel"])
    item_lines, items = share_rows(b.machine, lines, cycles)
    by_role = (tuple(numbers) for numbers in zip(*fold_axes(layer), strict=True))
    record = Fold(x.start, y.start, in_bytes(volume(y).strides), lines, item_lines, y.shape[1], *by_role)
    step(b, record, items, [x], [y])
