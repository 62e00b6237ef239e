"""Lowering of triangles of matrices."""

from bslite.kernels.contracts.cpu.moves import Trilu
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import size_of
from bslite.plan.cpu.sharing import share_rows
from bslite.plan.cpu.step import CpuBuilder, step


@CPU.register("trilu")
def lower_trilu(b: CpuBuilder, layer: Layer) -> None:
    """Lower `trilu`, row by row: zeros, the kept elements, zeros."""
    x, attrs = b.flat(b.values[layer.node.inputs[0]]), layer.node.attrs
    height, width = x.shape[-2:]
    y, rows = b.row_major(layer.name), size_of(x.shape[:-1])
    item_rows, items = share_rows(b.machine, rows, rows * (20.0 + 2.0 * width / b.machine.lanes))
    diagonal = max(-height, min(attrs["diagonal"], width))
    record = Trilu(x.start, y.start, height, width, attrs["upper"], diagonal, rows, item_rows)
    step(b, record, items, [x], [y])
