"""Padding, repeating and turning: copies of parts of the input, and of a number."""

from __future__ import annotations

from bslite.passes import Layer
from bslite.plan.core.cuts import mapped_copy
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import View, size_of
from bslite.plan.cpu.ops import pad as shared
from bslite.plan.cpu.ops import repeat as repeated
from bslite.plan.cuda.launch import CudaBuilder

CUDA.register("roll")(shared.lower_roll)
CUDA.register("expand")(repeated.lower_expand)
CUDA.register("tile")(repeated.lower_tile)


def fill(b: CudaBuilder, view: View, value: float) -> None:
    """Append a copy of a number to every element of ``view``: of a float, or an int where its cells are."""
    if not size_of(view.shape):
        return
    name = b.const("cells" if isinstance(value, int) else "numbers", values=[value])
    b.copy(View(name, 0, view.shape, (0,) * len(view.shape)), view)


@CUDA.register("pad")
def lower_pad(b: CudaBuilder, layer: Layer) -> None:
    """A constant everywhere, then what is left of the input copied over it; or pieces of the input alone."""
    x, y = b.values[layer.node.inputs[0]], b.write(layer.name)
    rank, attrs = len(x.shape), layer.node.attrs
    pads = list(zip(x.shape, attrs["pads"][:rank], attrs["pads"][rank:], strict=True))
    if attrs["mode"] != "constant":
        sources = [shared.padded_sources(*p, attrs["mode"]) if p[1] or p[2] else None for p in pads]
        mapped_copy(b, x, y, sources)
        return
    if any(before > 0 or after > 0 for _, before, after in pads):
        fill(b, y, float(attrs["value"]) if b.dtypes[layer.name] == "float32" else int(attrs["value"]))
    for axis, (size, before, after) in enumerate(pads):
        first, last = max(0, -before), size - max(0, -after)
        if first >= last:
            return
        x, y = x.slice(axis, first, last), y.slice(axis, first + before, last + before)
    b.copy(x, y)
