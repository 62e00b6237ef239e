"""Lowerings of functions of up to three broadcast values, with the activation after them."""

from bslite.kernels.contracts.activation import IDENTITY
from bslite.kernels.contracts.elementwise import on_integers, ordering, slope_of
from bslite.ops import BYTES, INTEGERS
from bslite.ops.binary import ARITHMETIC
from bslite.ops.compare import COMPARISONS
from bslite.passes import Layer
from bslite.passes.fuse import ACTIVATIONS
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.lowering import lowers
from bslite.plan.core.views import View
from bslite.plan.shared.activation import activation
from bslite.plan.shared.elementwise import normed

FAILS = "the result {value} does not fit 32 bits"
DIVISION = "{value} divided by zero, or a result beyond 32 bits"
#: The values that an integer function flags besides results that do not fit.
ALSO_FAILS = {
    **dict.fromkeys(("div", "floor_div", "fmod", "remainder"), DIVISION),
    "pow": "a negative power, or the result {value} does not fit 32 bits",
}
#: (from, to) -> the function that casts; pairs not listed have the same cells.
CASTS = {
    ("float32", "int"): "float_to_int",
    ("int", "float32"): "int_to_float",
    ("bool", "float32"): "int_to_float",
    ("float32", "bool"): "float_to_bool",
    ("int", "bool"): "int_to_bool",
}


def elementwise_layer(b: AnyBuilder, layer: Layer, function: str, fails: str | None = None) -> None:
    """Append ``function`` of the layer's inputs, then its activation. ``fails``: the message of its flag."""
    operands = [b.values[name] for name in layer.node.inputs]
    y = b.write(layer.name, like=operands)
    flag = b.flag(layer.name, fails, beyond=True) if fails else None
    b.target.elementwise_step(b, function, operands, y, activation(layer.activation), flag)


@lowers(*ACTIVATIONS)
def lower_activation(b: AnyBuilder, layer: Layer) -> None:
    """Lower an activation that is a layer of its own."""
    x = b.values[layer.node.inputs[0]]
    y = b.write(layer.name, like=[x])
    b.target.elementwise_step(b, "copy", [x], y, activation(layer.node), None)


@lowers("batch_norm")
def lower_batch_norm(b: AnyBuilder, layer: Layer) -> None:
    """Lower a batch norm: ``x*scale + shift`` per channel, and the activation after it."""
    normed(b, layer.node, layer.activation, b.values[layer.node.inputs[0]], b.write(layer.name))


@lowers("scale_shift")
def lower_scale_shift(b: AnyBuilder, layer: Layer) -> None:
    """Lower a scale and shift per channel that are values, and the activation after it."""
    x, *numbers = (b.values[name] for name in layer.node.inputs)
    y, wide = b.write(layer.name), (x.shape[1], *(1,) * (len(x.shape) - 2))
    per_channel = [b.reshaped(number, wide) for number in numbers]
    b.target.elementwise_step(b, "affine", [x, *per_channel], y, activation(layer.activation), None)


@lowers("activation_grad")
def lower_activation_grad(b: AnyBuilder, layer: Layer) -> None:
    """Lower the gradient of an activation to its function of two values."""
    elementwise_layer(b, layer, slope_of(layer.node.attrs["of"]))


@lowers(*ARITHMETIC)
def lower_arithmetic(b: AnyBuilder, layer: Layer) -> None:
    """Lower arithmetic to the function of the op's name, for floats or for integers."""
    op = layer.node.op
    if b.dtypes[layer.name] == "float32":
        elementwise_layer(b, layer, op)
    else:
        elementwise_layer(b, layer, on_integers(op), ALSO_FAILS.get(op, FAILS))


@lowers(*COMPARISONS)
def lower_comparison(b: AnyBuilder, layer: Layer) -> None:
    """Lower a comparison of floats, or of any other 32-bit cells."""
    elementwise_layer(b, layer, ordering(layer.node.op, b.dtypes[layer.node.inputs[0]] != "float32"))


@lowers("and", "or", "xor", "where", "isnan")
def lower_bits(b: AnyBuilder, layer: Layer) -> None:
    """Lower an op whose function is the same for every dtype."""
    elementwise_layer(b, layer, layer.node.op)


@lowers("not")
def lower_not(b: AnyBuilder, layer: Layer) -> None:
    """Lower `not`: the opposite of a bool, or the inverse of all bits of an integer."""
    elementwise_layer(b, layer, "not" if b.dtypes[layer.name] == "bool" else "not_int")


@lowers("isinf")
def lower_isinf(b: AnyBuilder, layer: Layer) -> None:
    """Lower `isinf` for infinities of either sign, of one sign, or of none."""
    asked = (layer.node.attrs["negative"], layer.node.attrs["positive"])
    kinds = {(True, True): "both", (True, False): "negative", (False, True): "positive"}
    elementwise_layer(b, layer, f"isinf_{kinds.get(asked, 'neither')}")


@lowers("cast")
def lower_cast(b: AnyBuilder, layer: Layer) -> None:
    """Lower a cast; where the cells are the same, the result is another view of the same memory."""
    (name,), to = layer.node.inputs, layer.node.attrs["to"]
    function = CASTS.get((_family(b.dtypes[name]), _family(to)))
    fails = f"a number of its input cannot be made {to}"
    if function is None:
        b.alias(layer.name, b.values[name])
    else:
        elementwise_layer(b, layer, function, fails if function == "float_to_int" else None)
    if to in BYTES and b.dtypes[name] not in ("bool", to):
        _check_bytes(b, layer.name, to, fails)


def _check_bytes(b: AnyBuilder, name: str, to: str, fails: str) -> None:
    """Raise the flag ``fails`` for integers that are no bytes: times 2**24, bytes alone fit 32 bits."""
    x = b.values[name]
    for function, number in (("int_sub", 128 * (to == "uint8")), ("int_mul", 2**24)):
        if number:
            y, constant = b.dense(x.shape), View(b.const("integer", value=number), 0, (), ())
            flag = b.flag(name, fails, beyond=True)
            b.target.elementwise_step(b, function, [x, constant], y, IDENTITY, flag)
            x = y


def _family(dtype: str) -> str:
    return "int" if dtype in (*INTEGERS, *BYTES) else dtype
