"""Lowerings that move data by changes of strides where those suffice, and by copies elsewhere."""

from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.lowering import lowers
from bslite.plan.core.views import NO_HALO, View, contiguous


@lowers("reshape", "flatten")
def lower_reshape(b: AnyBuilder, layer: Layer) -> None:
    """Lower a reshape to a view of the same memory if strides allow, else to a view of a row-major copy."""
    b.alias(layer.name, b.reshaped(b.values[layer.node.inputs[0]], b.shapes[layer.name]))


@lowers("permute")
def lower_permute(b: AnyBuilder, layer: Layer) -> None:
    """Lower `permute` to a view with reordered strides."""
    b.alias(layer.name, b.values[layer.node.inputs[0]].permute(layer.node.attrs["order"]))


@lowers("repeat_batch")
def lower_repeat_batch(b: AnyBuilder, layer: Layer) -> None:
    """Lower `repeat_batch` to a view with a stride of zero."""
    x = b.values[layer.node.inputs[0]]
    b.alias(layer.name, View(x.buffer, x.offset, b.shapes[layer.name], (0, *x.strides[1:])))


@lowers("slice")
def lower_slice(b: AnyBuilder, layer: Layer) -> None:
    """Lower `slice` to a view with an offset and a stride."""
    x = b.values[layer.node.inputs[0]]
    attrs = layer.node.attrs
    axis = attrs["axis"] % len(x.shape)
    start, stop, step = slice(attrs["start"], attrs["stop"], attrs["step"]).indices(x.shape[axis])
    b.alias(layer.name, x.slice(axis, start, stop, step))


@lowers("concat")
def lower_concat(b: AnyBuilder, layer: Layer) -> None:
    """Lower `concat`: inputs already written in place need nothing; the others are copied."""
    y = b.write(layer.name)
    axis = layer.node.attrs["axis"] % len(y.shape)
    start = 0
    for name in layer.node.inputs:
        x = b.values[name]
        size = x.shape[axis]
        target = y.slice(axis, start, start + size)
        if (x.buffer, x.offset, x.strides) != (target.buffer, target.offset, target.strides):
            b.copy(x, target)
        start += size


@lowers("constant")
def lower_constant(b: AnyBuilder, layer: Layer) -> None:
    """Lower `constant`: the parameter itself is the value."""
    key = layer.node.params["value"]
    shape = b.shapes[layer.name]
    b.alias(layer.name, View(b.const("param", key), 0, shape, contiguous(shape), NO_HALO))
