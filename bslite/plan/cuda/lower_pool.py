"""Pools: by the stack kernel, or one element a thread where it has no code for them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bslite import ops
from bslite.ops.pool import WindowPool
from bslite.passes import Layer
from bslite.plan.cuda.builder import CudaBuilder
from bslite.plan.cuda.elementwise import activation
from bslite.plan.cuda.launch import launch
from bslite.plan.cuda.lowering import lowers
from bslite.plan.cuda.stack import as_stack, small
from bslite.plan.lower_pool import LARGE, Span, adaptive_spans, window_spans
from bslite.plan.lowering import affine
from bslite.plan.views import NO_HALO, View, size_of
from bslite.plan.windows import volume

THREADS = 128


@lowers("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d")
def lower_pool(b: CudaBuilder, layer: Layer) -> None:
    """Sliding windows."""
    if as_stack(b, layer):
        return
    node, attrs = layer.node, layer.node.attrs
    op = ops.get(node.op)
    assert issubclass(op, WindowPool)
    kernel, stride, dilation = op.geometry(attrs)
    before, after = attrs["padding"][: op.axes], attrs["padding"][op.axes :]
    sizes, made = b.shapes[node.inputs[0]][2:], b.shapes[layer.name][2:]
    padded = attrs.get("count_include_pad", False)
    axes = zip(sizes, made, kernel, stride, before, after, dilation, strict=True)
    spans = [window_spans(*axis, padded) for axis in axes]
    if attrs.get("divisor_override") is not None:
        spans = [[s._replace(share=1) for s in axis] for axis in spans]
        spans[0] = [s._replace(share=attrs["divisor_override"]) for s in spans[0]]
    pool_step(b, _largest(layer), b.read(node.inputs[0]), b.write(layer.name), spans, dilation, layer)


@lowers(*(f"adaptive_{kind}_pool{axes}d" for kind in ("avg", "max") for axes in (1, 2, 3)))
def lower_adaptive_pool(b: CudaBuilder, layer: Layer) -> None:
    """Windows that divide the image."""
    n, c, *sizes = b.shapes[layer.node.inputs[0]]
    made = b.shapes[layer.name][2:]
    spans = [adaptive_spans(h, p) for h, p in zip(sizes, made, strict=True)]
    x, axes = b.read(layer.node.inputs[0]), len(sizes)
    if not _largest(layer) and size_of(made) == 1 and size_of(tuple(sizes)) >= LARGE:
        # A part at a time, then the parts: so that there are threads enough. By size alone, as on the CPU:
        # the order of the sum must not depend on anything else.
        width = sizes[-1] if axes > 1 else math.isqrt(sizes[0])
        parts = [Span(i, min(width, sizes[-1] - i), 1) for i in range(0, sizes[-1], width)]
        sums = b.fresh((n, c, *sizes[:-1], len(parts)), 1, NO_HALO)
        lines = [[Span(i, 1, 1) for i in range(h)] for h in sizes[:-1]]
        pool_step(b, 0, x, sums, [*lines, parts], (1,) * axes)
        spans[-1] = [Span(0, len(parts), sizes[-1])]
        x = sums
    pool_step(b, _largest(layer), x, b.write(layer.name), spans, (1,) * axes, layer)


def _largest(layer: Layer) -> int:
    return int("max" in layer.node.op)


def pool_step(
    b: CudaBuilder,
    largest: int,
    x: View,
    y: View,
    spans: Sequence[Sequence[Span]],
    dilation: Sequence[int],
    layer: Layer | None = None,
) -> None:
    """Append a pool of x to y: ``spans`` hold the windows along each axis. What ``layer`` holds besides the
    pool is applied in the store.
    """
    missing = 3 - len(spans)
    whole = [*[[Span(0, 1, 1)]] * missing, *spans]
    _, deep, tall, wide = (1, *[1] * missing, *dilation)
    source, target = volume(x), volume(y)
    small(b, source, target)
    n, c, planes, rows, cols = target.shape
    xi, xc, xp, xr, xx = source.strides
    yi, yc, yp, yr, yx = target.strides
    table = b.const("cells", values=[v for axis in whole for s in axis for v in s])
    has_affine, scale, shift = affine(b, layer.affine if layer else None)
    name, first, second = activation(layer.activation if layer else None)
    threads = min(THREADS, b.machine.block_threads)
    variant = {"largest": largest, **has_affine, "activation": name, "threads": threads}
    count = size_of(target.shape)
    scalars: dict[str, int | float] = {
        "count": count, "channels": c, "planes": planes, "rows": rows, "cols": cols,
        "x_image": xi, "x_plane": xp, "x_row": xr, "x_col": xx, "x_channel": xc,
        "down": deep * xp, "tall": tall * xr, "wide": wide * xx,
        "y_image": yi, "y_plane": yp, "y_row": yr, "y_col": yx, "y_channel": yc, "a": first, "b": second,
    }  # fmt: skip
    places = {"x": (x.buffer, x.offset), "y": (y.buffer, y.offset), "spans": (table, 0)}
    places["scale"], places["shift"] = ((k, 0) if k else places["x"] for k in (scale, shift))
    launch(b, "pool", variant, [-(-count // threads)], [threads], scalars, places, [x], [y])
