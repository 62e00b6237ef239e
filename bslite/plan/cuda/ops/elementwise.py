"""Layers of one function of up to three values: arithmetic, comparisons, logic, casts, batch norms."""

from __future__ import annotations

from bslite.ops.binary import ARITHMETIC
from bslite.ops.compare import COMPARISONS
from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import View
from bslite.plan.cpu.ops.elementwise import ALSO_FAILS, FAILS
from bslite.plan.cpu.ops.gather import CAST_FAILS, cast_mode
from bslite.plan.cuda.elementwise import elementwise_layer, elementwise_step
from bslite.plan.cuda.launch import CudaBuilder
from bslite.plan.shared.activation import affine

#: Modes of the CPU's cast kernel, in order, as functions of `kernels.cuda.math.cells`.
CAST = ("float_to_int", "int_to_float", "float_to_bool", "int_to_bool")


@CUDA.register(*ARITHMETIC)
def lower_arithmetic(b: CudaBuilder, layer: Layer) -> None:
    """The function of the op's name."""
    name = layer.node.op
    if b.dtypes[layer.name] == "float32":
        elementwise_layer(b, layer, name)
    else:
        elementwise_layer(b, layer, f"int_{name}", ALSO_FAILS.get(name, FAILS))


@CUDA.register(*COMPARISONS)
def lower_comparison(b: CudaBuilder, layer: Layer) -> None:
    """Of floats, or of whatever else lies in 32-bit cells."""
    integers = b.dtypes[layer.node.inputs[0]] != "float32"
    elementwise_layer(b, layer, layer.node.op + "_int" * integers)


@CUDA.register("and", "or", "xor", "where", "isnan")
def lower_bits(b: CudaBuilder, layer: Layer) -> None:
    """What is the same for every dtype."""
    elementwise_layer(b, layer, layer.node.op)


@CUDA.register("not")
def lower_not(b: CudaBuilder, layer: Layer) -> None:
    """The opposite of a bool, all bits of an integer."""
    elementwise_layer(b, layer, "not" if b.dtypes[layer.name] == "bool" else "not_int")


@CUDA.register("isinf")
def lower_isinf(b: CudaBuilder, layer: Layer) -> None:
    """Of either sign, of one, or of none."""
    asked = (layer.node.attrs["negative"], layer.node.attrs["positive"])
    kinds = {(True, True): "both", (True, False): "negative", (False, True): "positive"}
    elementwise_layer(b, layer, f"isinf_{kinds.get(asked, 'neither')}")


@CUDA.register("cast")
def lower_cast(b: CudaBuilder, layer: Layer) -> None:
    """Nothing to do where the cells are the same."""
    (name,), to = layer.node.inputs, layer.node.attrs["to"]
    mode = cast_mode(b.dtypes[name], to)
    if mode is None:
        b.alias(layer.name, b.values[name])
        return
    function = CAST[mode]
    elementwise_layer(b, layer, function, CAST_FAILS.format(to=to) if function == "float_to_int" else None)


@CUDA.register("batch_norm")
def lower_batch_norm(b: CudaBuilder, layer: Layer) -> None:
    """``x*scale + shift`` per channel, and the activation after it."""
    x, y = b.values[layer.node.inputs[0]], b.write(layer.name)
    numbers = affine(b, layer.node)
    assert numbers is not None
    along = tuple(int(axis == 1) for axis in range(len(x.shape)))
    per_channel = [View(at.buffer, at.at, x.shape, along) for at in numbers]
    elementwise_step(b, [x, *per_channel], y, "affine", layer.activation)
