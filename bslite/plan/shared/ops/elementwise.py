"""Layers of one function of up to three values, and the activation after it, broadcast to their shape."""

from __future__ import annotations

from bslite.kernels.contracts.elementwise import on_integers, ordering
from bslite.ops.binary import ARITHMETIC
from bslite.ops.compare import COMPARISONS
from bslite.passes import Layer
from bslite.passes.fuse import ACTIVATIONS
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.lowering import lowers
from bslite.plan.core.views import View
from bslite.plan.shared.activation import activation, affine

FAILS = "the result {value} does not fit 32 bits"
DIVISION = "{value} divided by zero, or a result beyond 32 bits"
#: Why an integer function flags a value, where that is not all.
ALSO_FAILS = {
    **dict.fromkeys(("div", "floor_div", "fmod", "remainder"), DIVISION),
    "pow": "a negative power, or the result {value} does not fit 32 bits",
}
#: (from, to) -> the function that casts; what is not listed has the same cells.
CASTS = {
    ("float32", "int"): "float_to_int",
    ("int", "float32"): "int_to_float",
    ("bool", "float32"): "int_to_float",
    ("float32", "bool"): "float_to_bool",
    ("int", "bool"): "int_to_bool",
}


def elementwise_layer(b: AnyBuilder, layer: Layer, function: str, fails: str | None = None) -> None:
    """Append ``function`` of the layer's inputs, then its activation. ``fails``: what its flag means."""
    operands = [b.values[name] for name in layer.node.inputs]
    y = b.write(layer.name)
    flag = b.flag(layer.name, fails) if fails else None
    b.target.elementwise_step(b, function, operands, y, activation(layer.activation), flag)


@lowers(*ACTIVATIONS)
def lower_activation(b: AnyBuilder, layer: Layer) -> None:
    """An activation that is a layer of its own."""
    x, y = b.values[layer.node.inputs[0]], b.write(layer.name)
    b.target.elementwise_step(b, "copy", [x], y, activation(layer.node), None)


@lowers("batch_norm")
def lower_batch_norm(b: AnyBuilder, layer: Layer) -> None:
    """``x*scale + shift`` per channel, and the activation after it."""
    x = b.values[layer.node.inputs[0]]
    y = b.write(layer.name)
    numbers = affine(b, layer.node)
    assert numbers is not None
    along = tuple(int(axis == 1) for axis in range(len(x.shape)))
    per_channel = [View(number.buffer, number.at, x.shape, along) for number in numbers]
    b.target.elementwise_step(b, "affine", [x, *per_channel], y, activation(layer.activation), None)


@lowers(*ARITHMETIC)
def lower_arithmetic(b: AnyBuilder, layer: Layer) -> None:
    """The function of the op's name, of floats or of integers."""
    op = layer.node.op
    if b.dtypes[layer.name] == "float32":
        elementwise_layer(b, layer, op)
    else:
        elementwise_layer(b, layer, on_integers(op), ALSO_FAILS.get(op, FAILS))


@lowers(*COMPARISONS)
def lower_comparison(b: AnyBuilder, layer: Layer) -> None:
    """Of floats, or of whatever else lies in 32-bit cells."""
    elementwise_layer(b, layer, ordering(layer.node.op, b.dtypes[layer.node.inputs[0]] != "float32"))


@lowers("and", "or", "xor", "where", "isnan")
def lower_bits(b: AnyBuilder, layer: Layer) -> None:
    """What is the same for every dtype."""
    elementwise_layer(b, layer, layer.node.op)


@lowers("not")
def lower_not(b: AnyBuilder, layer: Layer) -> None:
    """The opposite of a bool, all bits of an integer."""
    elementwise_layer(b, layer, "not" if b.dtypes[layer.name] == "bool" else "not_int")


@lowers("isinf")
def lower_isinf(b: AnyBuilder, layer: Layer) -> None:
    """Of either sign, of one, or of none."""
    asked = (layer.node.attrs["negative"], layer.node.attrs["positive"])
    kinds = {(True, True): "both", (True, False): "negative", (False, True): "positive"}
    elementwise_layer(b, layer, f"isinf_{kinds.get(asked, 'neither')}")


@lowers("cast")
def lower_cast(b: AnyBuilder, layer: Layer) -> None:
    """Another view of the same memory where the cells are the same."""
    (name,), to = layer.node.inputs, layer.node.attrs["to"]
    function = CASTS.get((_family(b.dtypes[name]), _family(to)))
    if function is None:
        b.alias(layer.name, b.values[name])
        return
    fails = f"a number of its input cannot be made {to}" if function == "float_to_int" else None
    elementwise_layer(b, layer, function, fails)


def _family(dtype: str) -> str:
    return "int" if dtype in ("int64", "int32") else dtype
