"""Softmax and its logarithm as steps."""

from __future__ import annotations

from bslite.passes import Layer
from bslite.plan.builder import Builder
from bslite.plan.lowering import lowers
from bslite.plan.rows import row_step


@lowers("softmax", "log_softmax")
def lower_softmax(b: Builder, layer: Layer) -> None:
    """Along any axis: it is made contiguous first."""
    name = layer.node.inputs[0]
    axis = layer.node.attrs["axis"] % len(b.shapes[name])
    x = b.read(name, inner=axis)
    registers = -(-x.shape[axis] // b.machine.lanes)
    row_step(b, layer, layer.node.op, x, axis, cycles=60 + 30 * registers)
