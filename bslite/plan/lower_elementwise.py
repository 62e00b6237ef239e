"""Layers of one function of two or three values: see `bslite.plan.elementwise`."""

from __future__ import annotations

from bslite.passes import Layer
from bslite.plan.builder import Builder
from bslite.plan.elementwise import elementwise_layer
from bslite.plan.lowering import lowers

#: Cycles of a register of results, where they are more than the memory's.
CYCLES = {"pow": 80.0, "div": 10.0, "fmod": 300.0, "remainder": 300.0, "atan2": 500.0}


@lowers("sub", "div", "pow", "maximum", "minimum", "prelu", "fmod", "remainder", "atan2")
def lower_function(b: Builder, layer: Layer) -> None:
    """The function of the op's name."""
    elementwise_layer(b, layer, layer.node.op, CYCLES.get(layer.node.op, 4.0))
