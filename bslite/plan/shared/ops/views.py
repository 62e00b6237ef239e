"""Ops that move data as changes of strides where that suffices, and as copies where it does not."""

from __future__ import annotations

from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.lowering import lowers
from bslite.plan.core.views import NO_HALO, View, contiguous


@lowers("reshape", "flatten")
def lower_reshape(b: AnyBuilder, layer: Layer) -> None:
    """A new shape over the same memory if strides allow, else over a row-major copy."""
    x = b.values[layer.node.inputs[0]]
    view = x.reshape(b.shapes[layer.name])
    if view is None:
        view = b.flat(x).reshape(b.shapes[layer.name])
        assert view is not None
    b.alias(layer.name, view)


@lowers("permute")
def lower_permute(b: AnyBuilder, layer: Layer) -> None:
    """Strides reordered."""
    b.alias(layer.name, b.values[layer.node.inputs[0]].permute(layer.node.attrs["order"]))


@lowers("repeat_batch")
def lower_repeat_batch(b: AnyBuilder, layer: Layer) -> None:
    """A stride of zero."""
    x = b.values[layer.node.inputs[0]]
    b.alias(layer.name, View(x.buffer, x.offset, b.shapes[layer.name], (0, *x.strides[1:])))


@lowers("slice")
def lower_slice(b: AnyBuilder, layer: Layer) -> None:
    """An offset and a stride."""
    x = b.values[layer.node.inputs[0]]
    attrs = layer.node.attrs
    axis = attrs["axis"] % len(x.shape)
    start, stop, step = slice(attrs["start"], attrs["stop"], attrs["step"]).indices(x.shape[axis])
    b.alias(layer.name, x.slice(axis, start, stop, step))


@lowers("concat")
def lower_concat(b: AnyBuilder, layer: Layer) -> None:
    """Nothing to do for inputs already written in place; copies for the others."""
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
    """The parameter itself, as a value."""
    key = layer.node.params["value"]
    shape = b.shapes[layer.name]
    b.alias(layer.name, View(b.const("param", key), 0, shape, contiguous(shape), NO_HALO))
