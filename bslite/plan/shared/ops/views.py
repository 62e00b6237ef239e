"""Lowerings that move data by changes of strides where those suffice, and by copies elsewhere."""

from dataclasses import replace

from bslite.ops import Shape
from bslite.passes import Layer, readers
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.lowering import lowers
from bslite.plan.core.views import NO_HALO, View, contiguous, reshaped_strides, size_of


@lowers("reshape", "flatten")
def lower_reshape(b: AnyBuilder, layer: Layer) -> None:
    """Lower a reshape to a view of the same memory if strides allow, else to a view of a copy."""
    x, shape = b.values[layer.node.inputs[0]], b.shapes[layer.name]
    view = x.reshape(shape) or _closed_up(b, layer.name, x)
    if view is None and _joins_axes(b, layer.name, x.shape):
        place = b.write(layer.name).reshape(x.shape)
        assert place is not None
        b.copy(x, place)
    else:
        b.alias(layer.name, view or b.reshaped(x, shape))


def _joins_axes(b: AnyBuilder, name: str, shape: Shape) -> bool:
    """Whether the value ``name`` is an image, and each of its axes is one or several of ``shape``: what has
    that shape is copied to its place, where a row-major copy would be turned once more.
    """
    if not b.target.any_order or b.inner(name) != 1:
        return False
    image = b.shapes[name]
    apart = (1,) * len(image)  # strides that join no axes
    return reshaped_strides(image, apart, shape) is not None


def _closed_up(b: AnyBuilder, name: str, x: View) -> View | None:
    """The reshaped view ``name`` of a copy of ``x`` without gaps (lines of an image have zeros in between).

    None if strides do not allow it either, or if not all readers put its innermost axis last: a row-major
    copy is better for the others.
    """
    strides = x.closed_up
    if strides is None:
        return None
    found = View("", 0, x.shape, strides).reshape(b.shapes[name])
    if found is None or name in b.spec.outputs:
        return None
    for reader in readers(b.spec).get(name, []):
        if reader.op != "permute" or found.permute(reader.attrs["order"]).strides[-1] != 1:
            return None
    buffer = b.buffer(size_of(x.shape)).name
    b.copy(x, View(buffer, 0, x.shape, strides))
    return replace(found, buffer=buffer)


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
