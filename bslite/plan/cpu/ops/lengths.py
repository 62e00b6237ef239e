"""Lengths of sequences: copied, and checked on the way."""

from __future__ import annotations

from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.cpu.ops.index import dense
from bslite.plan.cpu.step import CpuBuilder, untyped


@CPU.register("sequence_lengths")
def lower_sequence_lengths(b: CpuBuilder, layer: Layer) -> None:
    """One item. Each thing that can be wrong has its flag."""
    attrs, lengths = layer.node.attrs, b.flat(b.values[layer.node.inputs[0]])
    steps, y = b.shapes[layer.node.inputs[1]][0], dense(b, lengths.shape)
    most = steps if attrs["longest"] is None else min(attrs["longest"], steps)
    args = {
        "count": lengths.shape[0], "most": most, "sorted": int(attrs["sorted"]),
        "steps": steps if attrs["whole"] else 0,
    }  # fmt: skip
    operands = {
        "x": (lengths.buffer, lengths.offset), "y": (y.buffer, y.offset),
        "range": b.flag(layer.name, f"sequence length {{value}} is not between 1 and {most}"),
        "order": b.flag(
            layer.name,
            "sequence length {value} follows a shorter one; with enforce_sorted=True they must be in "
            "decreasing order",
        ),
        "whole": b.flag(
            layer.name,
            f"the longest sequence has {{value}} of {steps} steps: cut x to it, or give "
            f"pad_packed_sequence total_length={steps}",
        ),
    }  # fmt: skip
    untyped(b, "sequence_lengths", 1, args, operands, [lengths], [y])
    b.alias(layer.name, y)
