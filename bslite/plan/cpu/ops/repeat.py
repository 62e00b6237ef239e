"""Repeating elements, by strides of zero; and triangles of matrices."""

from __future__ import annotations

from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, contiguous, size_of
from bslite.plan.cpu.sharing import share_rows
from bslite.plan.cpu.step import CpuBuilder, untyped


@CPU.register("expand")
def lower_expand(b: CpuBuilder, layer: Layer) -> None:
    """Strides of zero."""
    b.alias(layer.name, b.values[layer.node.inputs[0]].broadcast(b.shapes[layer.name]))


@CPU.register("tile")
def lower_tile(b: CpuBuilder, layer: Layer) -> None:
    """One copy: each axis seen as (repeats, size), along the first of which the input stands still."""
    x, y = b.values[layer.node.inputs[0]], b.write(layer.name)
    repeats = layer.node.attrs["repeats"]
    if all(r == 1 for r in repeats):
        b.alias(layer.name, x)
        return
    shape = tuple(n for pair in zip(repeats, x.shape, strict=True) for n in pair)
    from_x = tuple(s for stride in x.strides for s in (0, stride))
    to_y = tuple(s for n, stride in zip(x.shape, y.strides, strict=True) for s in (n * stride, stride))
    b.copy(View(x.buffer, x.offset, shape, from_x), View(y.buffer, y.offset, shape, to_y))


@CPU.register("trilu")
def lower_trilu(b: CpuBuilder, layer: Layer) -> None:
    """Row by row: zeros, what is kept, zeros."""
    x = b.flat(b.values[layer.node.inputs[0]])
    attrs = layer.node.attrs
    height, width = x.shape[-2:]
    rows = size_of(x.shape[:-1])
    item_rows, items = share_rows(b.machine, rows, rows * (20.0 + 2.0 * width / b.machine.lanes))
    y = View(b.buffer(size_of(x.shape)).name, 0, x.shape, contiguous(x.shape))
    args = {
        "height": height, "width": width, "upper": int(attrs["upper"]),
        "diagonal": max(-height, min(attrs["diagonal"], width)), "rows": rows, "item_rows": item_rows,
    }  # fmt: skip
    untyped(b, "trilu", items, args, {"x": (x.buffer, x.offset), "y": (y.buffer, 0)}, [x], [y])
    b.alias(layer.name, y)
