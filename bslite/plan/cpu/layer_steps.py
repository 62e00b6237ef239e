"""Lowers one layer to its steps."""

from bslite.passes import Layer
from bslite.plan.core.bands import WINDOWED
from bslite.plan.core.lowering import CPU
from bslite.plan.cpu.step import CpuBuilder


def lower_layer(b: CpuBuilder, layer: Layer) -> None:
    """Lower one layer of a band; an op that maps rows to themselves sees no other rows of its inputs."""
    if layer.node.op in WINDOWED:
        CPU[layer.node.op](b, layer)
        return
    kept = {name: b.values[name] for name in layer.inputs}
    for name, view in kept.items():
        b.values[name] = b.like(view, name, layer.name)
    CPU[layer.node.op](b, layer)
    b.values.update(kept)
