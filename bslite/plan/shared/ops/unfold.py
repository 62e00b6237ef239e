"""Lowering of `unfold`: windows become columns by strides over the padded image, and by one copy where they
have other readers than Fourier transforms.
"""

from bslite.ops.fold import positions
from bslite.passes import Layer, readers
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
    shape, strides = (*x.shape[:2], *attrs["kernel"], *windows), (n, c, h * dh, w * dw, h * sh, w * sw)
    found = View(x.buffer, x.offset, shape, strides)
    if (columns := found.reshape(b.shapes[layer.name])) is not None and _transformed(b, layer.name):
        b.alias(layer.name, columns)
        return
    y = b.dense(shape)
    b.copy(found, y)
    b.alias(layer.name, b.reshaped(y, b.shapes[layer.name]))


def _transformed(b: AnyBuilder, name: str) -> bool:
    """Whether only Fourier transforms read a value: they take its columns as they lie in the image."""
    reading = readers(b.spec).get(name, [])
    return bool(reading) and name not in b.spec.outputs and all(node.op == "fourier" for node in reading)
