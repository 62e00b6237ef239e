"""Layers of one function of up to three values: see `bslite.plan.cpu.elementwise`."""

from __future__ import annotations

from bslite.ops.binary import ARITHMETIC
from bslite.ops.compare import COMPARISONS
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.cpu.elementwise import elementwise_layer
from bslite.plan.cpu.step import CpuBuilder

#: Cycles of a register of results, where they are more than the memory's.
CYCLES = {"pow": 80.0, "div": 10.0, "fmod": 300.0, "remainder": 300.0, "atan2": 500.0}
DIVISIONS = ("div", "floor_div", "fmod", "remainder")
INTEGER_CYCLES = 60.0
FAILS = "the result {value} does not fit 32 bits"
#: Why an integer function flags a value, where that is not all.
ALSO_FAILS = {
    **dict.fromkeys(DIVISIONS, "{value} divided by zero, or a result beyond 32 bits"),
    "pow": "a negative power, or the result {value} does not fit 32 bits",
}


def lower_integers(b: CpuBuilder, layer: Layer) -> None:
    """Integer arithmetic."""
    name = layer.node.op
    elementwise_layer(b, layer, f"int_{name}", INTEGER_CYCLES, ALSO_FAILS.get(name, FAILS))


@CPU.register(*(name for name in ARITHMETIC if name not in ("add", "mul")))
def lower_arithmetic(b: CpuBuilder, layer: Layer) -> None:
    """The function of the op's name."""
    if b.dtypes[layer.name] == "float32":
        elementwise_layer(b, layer, layer.node.op, CYCLES.get(layer.node.op, 4.0))
    else:
        lower_integers(b, layer)


@CPU.register(*COMPARISONS)
def lower_comparison(b: CpuBuilder, layer: Layer) -> None:
    """Of floats, or of whatever else lies in 32-bit cells."""
    integers = b.dtypes[layer.node.inputs[0]] != "float32"
    elementwise_layer(b, layer, layer.node.op + "_int" * integers)


@CPU.register("and", "or", "xor", "where", "isnan")
def lower_bits(b: CpuBuilder, layer: Layer) -> None:
    """What is the same for every dtype."""
    elementwise_layer(b, layer, layer.node.op)


@CPU.register("not")
def lower_not(b: CpuBuilder, layer: Layer) -> None:
    """The opposite of a bool, all bits of an integer."""
    elementwise_layer(b, layer, "not" if b.dtypes[layer.name] == "bool" else "not_int")


@CPU.register("isinf")
def lower_isinf(b: CpuBuilder, layer: Layer) -> None:
    """Of either sign, of one, or of none."""
    asked = (layer.node.attrs["negative"], layer.node.attrs["positive"])
    kinds = {(True, True): "both", (True, False): "negative", (False, True): "positive"}
    elementwise_layer(b, layer, f"isinf_{kinds.get(asked, 'neither')}")
