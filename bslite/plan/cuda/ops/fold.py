"""Images as columns of windows: strides and a copy. Columns as images: sums by tables of offsets."""

from __future__ import annotations

from bslite.ops.fold import positions
from bslite.passes import Layer
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import View, contiguous, size_of
from bslite.plan.cpu.ops.fold import fold_axes
from bslite.plan.cpu.ops.index import dense
from bslite.plan.cuda.launch import CudaBuilder, untyped
from bslite.plan.cuda.ops.pad import fill
from bslite.plan.cuda.rows import block_threads


@CUDA.register("fold")
def lower_fold(b: CudaBuilder, layer: Layer) -> None:
    """A table for each axis: at every element, where in x the windows are that it is in."""
    x, axes = b.flat(b.values[layer.node.inputs[0]]), fold_axes(layer)
    y, threads = dense(b, b.shapes[layer.name]), block_threads(b)
    total = size_of(y.shape)
    window, places = tuple(a.k for a in axes), tuple(a.w for a in axes)
    numbers = {
        "total": total, "depth": axes[0].n, "height": axes[1].n, "width": axes[2].n,
        "channel": size_of(window) * size_of(places),
    }  # fmt: skip
    operands = {"x": (x.buffer, x.offset), "y": (y.buffer, 0)}
    for i, (axis, name) in enumerate(zip(axes, ("plane", "line", "pixel"), strict=True)):
        a_tap, a_place = size_of(window[i + 1 :]) * size_of(places), size_of(places[i + 1 :])
        found = [[tap * a_tap + place * a_place for tap, place in axis.found(at)] for at in range(axis.n)]
        most = max(1, *map(len, found))
        table = [offset for line in found for offset in (*line, *(-1,) * (most - len(line)))]
        operands[f"{name}s"] = (b.const("cells", values=table), 0)
        numbers[f"of_{name}"] = most
    untyped(b, "fold", {"threads": threads}, [-(-total // threads)], [threads], numbers, operands, [x], [y])
    b.alias(layer.name, y)


@CUDA.register("unfold")
def lower_unfold(b: CudaBuilder, layer: Layer) -> None:
    """The image seen as [N, C, window, places] by its strides: one copy."""
    x, attrs = b.values[layer.node.inputs[0]], layer.node.attrs
    windows = positions(x.shape[2:], attrs)
    top, left, bottom, right = attrs["padding"]
    if any(attrs["padding"]):
        wide = dense(b, (*x.shape[:2], x.shape[2] + top + bottom, x.shape[3] + left + right))
        fill(b, wide, 0.0 if b.dtypes[layer.name] == "float32" else 0)
        b.copy(x, wide.slice(2, top, top + x.shape[2]).slice(3, left, left + x.shape[3]))
        x = wide
    n, c, h, w = x.strides
    (dh, dw), (sh, sw) = attrs["dilation"], attrs["stride"]
    shape = (*x.shape[:2], *attrs["kernel"], *windows)
    y = dense(b, shape)
    b.copy(View(x.buffer, x.offset, shape, (n, c, h * dh, w * dw, h * sh, w * sw)), y)
    made = b.shapes[layer.name]
    b.alias(layer.name, View(y.buffer, 0, made, contiguous(made)))
