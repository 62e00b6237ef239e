"""Softmax and its logarithm as steps."""

from __future__ import annotations

from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.cpu.rows import row_layer
from bslite.plan.cpu.step import CpuBuilder


@CPU.register("softmax", "log_softmax")
def lower_softmax(b: CpuBuilder, layer: Layer) -> None:
    """Along any axis: it is made contiguous first."""
    shape = b.shapes[layer.name]
    axis = layer.node.attrs["axis"] % len(shape)
    registers = -(-shape[axis] // b.machine.lanes)
    row_layer(b, layer, layer.node.op, axis, cycles=60 + 30 * registers)
