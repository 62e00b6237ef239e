"""Lowerings that repeat elements by strides of zero."""

from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.lowering import lowers
from bslite.plan.core.views import View


@lowers("expand")
def lower_expand(b: AnyBuilder, layer: Layer) -> None:
    """Lower `expand`: a view with strides of zero."""
    b.alias(layer.name, b.values[layer.node.inputs[0]].broadcast(b.shapes[layer.name]))


@lowers("tile")
def lower_tile(b: AnyBuilder, layer: Layer) -> None:
    """Lower `tile` in one copy: axes become (repeats, size), with stride 0 along repeats in the input."""
    x, y = b.values[layer.node.inputs[0]], b.write(layer.name)
    repeats = layer.node.attrs["repeats"]
    if all(r == 1 for r in repeats):
        b.alias(layer.name, x)
        return
    shape = tuple(n for pair in zip(repeats, x.shape, strict=True) for n in pair)
    from_x = tuple(s for stride in x.strides for s in (0, stride))
    to_y = tuple(s for n, stride in zip(x.shape, y.strides, strict=True) for s in (n * stride, stride))
    b.copy(View(x.buffer, x.offset, shape, from_x), View(y.buffer, y.offset, shape, to_y))
