"""Lowering of `unfold`: windows become columns by strides over the padded image and one copy."""

from bslite.ops.fold import positions
from bslite.passes import Layer
from bslite.plan.core.builder import AnyBuilder
from bslite.plan.core.lowering import lowers
from bslite.plan.core.views import View


@lowers("unfold")
def lower_unfold(b: AnyBuilder, layer: Layer) -> None:
    """Lower `unfold`: a copy of the image viewed as [N, C, window, places]."""
    x, attrs = b.values[layer.node.inputs[0]], layer.node.attrs
    windows = positions(x.shape[2:], attrs)
    top, left, bottom, right = attrs["padding"]
    if any(attrs["padding"]):
        wide = b.dense((*x.shape[:2], x.shape[2] + top + bottom, x.shape[3] + left + right))
        b.target.fill(b, wide, 0.0 if b.dtypes[layer.name] == "float32" else 0)
        b.copy(x, wide.slice(2, top, top + x.shape[2]).slice(3, left, left + x.shape[3]))
        x = wide
    n, c, h, w = x.strides
    (dh, dw), (sh, sw) = attrs["dilation"], attrs["stride"]
    y = b.dense((*x.shape[:2], *attrs["kernel"], *windows))
    b.copy(View(x.buffer, x.offset, y.shape, (n, c, h * dh, w * dw, h * sh, w * sw)), y)
    b.alias(layer.name, b.reshaped(y, b.shapes[layer.name]))
