"""Pooling as steps: the tables that say which rows and columns each window covers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from bslite import ops
from bslite.ops.pool import WindowPool
from bslite.passes import Layer
from bslite.plan.builder import Builder
from bslite.plan.lowering import affine, epilogue, lowers
from bslite.plan.sharing import share_image
from bslite.plan.views import NO_HALO, View, size_of

LARGE = 256  # pixels from which on an average over the whole image is taken in two steps
STRIP = 8  # pixels at least: columns are shared within a strip only


class Span(NamedTuple):
    """What a window covers along one axis: ``length`` elements from ``first``; ``share`` of its divisor."""

    first: int
    length: int
    share: int


class Run(NamedTuple):
    """``pixels`` windows from ``first`` on that are alike: ``wide`` elements each, ``stride`` apart."""

    first: int
    pixels: int
    wide: int
    stride: int


def window_spans(
    size: int, windows: int, kernel: int, stride: int, before: int, after: int, dilation: int, padded: bool
) -> list[Span]:
    """Sliding windows, cut to the ``size`` elements there are. ``padded``: the divisor counts padding too."""
    spans = []
    for start in range(-before, -before + windows * stride, stride):
        skip = max(0, -(start // dilation))  # taps before the first element
        stop = min(kernel, max(skip, -(-(size - start) // dilation)))
        inside = min(start + kernel, size + after) - start if padded else max(0, stop - skip)
        spans.append(Span(start + skip * dilation, max(0, stop - skip), inside))
    return spans


def adaptive_spans(size: int, windows: int) -> list[Span]:
    """Windows that divide ``size`` elements among them, overlapping where the division is uneven."""
    edges = [(i * size // windows, -(-(i + 1) * size // windows)) for i in range(windows)]
    return [Span(a, b - a, b - a) for a, b in edges]


def longest_run(spans: Sequence[Span]) -> Run:
    """The longest run of windows of one length and share, evenly spaced: what the kernel sweeps along."""
    best, start = Run(0, 0, 0, 0), 0
    while start < len(spans):
        here, stop = spans[start], start + 1
        gap = spans[stop].first - here.first if stop < len(spans) else 0
        while stop < len(spans) and spans[stop] == here._replace(first=here.first + gap * (stop - start)):
            stop += 1
        best = max(best, Run(start, stop - start, here.length, gap), key=lambda run: run.pixels)
        start = stop
    return best


def strip_count(run: Run, tall: int, pixel_bytes: int, l1: int) -> int:
    """Strips to cut a run into, so that what windows of ``tall`` rows read of one fits half of L1."""
    fixed = tall * (run.wide - run.stride)
    each = tall * run.stride + 1  # pixels read and written for one more pixel of the strip
    pixels = max(STRIP, (l1 // 2 // pixel_bytes - fixed) // each)
    return -(-run.pixels // pixels) or 1


@lowers("max_pool2d", "avg_pool2d")
def lower_pool2d(b: Builder, layer: Layer) -> None:
    """Sliding windows."""
    node, attrs = layer.node, layer.node.attrs
    op = ops.get(node.op)
    assert issubclass(op, WindowPool)
    kernel, stride, dilation = op.geometry(attrs)
    top, left, bottom, right = attrs["padding"]
    _, _, h, w = b.crop.whole[node.inputs[0]]
    _, _, p, q = b.crop.whole[layer.name]
    padded = attrs.get("count_include_pad", False)
    rows = window_spans(h, p, kernel[0], stride[0], top, bottom, dilation[0], padded)
    cols = window_spans(w, q, kernel[1], stride[1], left, right, dilation[1], padded)
    if attrs.get("divisor_override") is not None:
        rows = [span._replace(share=attrs["divisor_override"]) for span in rows]
        cols = [span._replace(share=1) for span in cols]
    first, start = b.crop.first(layer.name), b.crop.first(node.inputs[0])
    rows = [s._replace(first=s.first - start) for s in rows[first : first + b.shapes[layer.name][2]]]
    x = b.read(node.inputs[0], exact=True)
    _pool(b, _kernel(layer), x, b.write(layer.name), rows, cols, dilation, layer)


@lowers("adaptive_avg_pool2d", "adaptive_max_pool2d")
def lower_adaptive_pool2d(b: Builder, layer: Layer) -> None:
    """Windows that divide the image."""
    n, c, h, w = b.shapes[layer.node.inputs[0]]
    _, _, p, q = b.shapes[layer.name]
    if "avg" in layer.node.op and p == q == 1 and h * w >= LARGE:
        # A line at a time, then the lines: threads share out lines, and each has its own in its L2. By size
        # alone, so that the order of the sum does not depend on anything else.
        sums = b.fresh((n, c, h, 1), 1, NO_HALO)
        ones = [Span(i, 1, 1) for i in range(h)]
        _pool(b, "avg_pool", b.read(layer.node.inputs[0], exact=True), sums, ones, [Span(0, w, 1)], (1, 1))
        rows, cols, x = [Span(0, h, h)], [Span(0, 1, w)], sums
    else:
        rows, cols = adaptive_spans(h, p), adaptive_spans(w, q)
        x = b.read(layer.node.inputs[0], exact=True)
    _pool(b, _kernel(layer), x, b.write(layer.name), rows, cols, (1, 1), layer)


def _kernel(layer: Layer) -> str:
    return "max_pool" if "max" in layer.node.op else "avg_pool"


def _pool(
    b: Builder,
    kernel: str,
    x: View,
    y: View,
    rows: Sequence[Span],
    cols: Sequence[Span],
    dilation: tuple[int, int],
    layer: Layer | None = None,
) -> None:
    """Append one pooling step from x to y: ``rows`` and ``cols`` hold a window per output line and pixel.
    What ``layer`` holds besides the pool is applied in the store.
    """
    n, channels, lines, pixels = y.shape
    xi, _, xl, xc = x.strides
    registers = -(-channels // b.machine.lanes)
    loads = n * registers * sum(s.length for s in rows) * sum(s.length for s in cols)
    shares = share_image(b.machine, n, lines, channels, 1.5 * loads + 16.0 * n * registers * lines * pixels)
    run = longest_run(cols)
    if dilation[1] != 1 or (run.stride > 1 and 4 * size_of(x.shape[1:]) > b.machine.l2):
        run = Run(
            0, 0, 0, 0
        )  # what comes from beyond L2 is best read in the order of memory, if hardly shared
    tall = max(s.length for s in rows)
    strips = strip_count(run, tall, 4 * channels, b.machine.l1)
    cells, scale, shift = affine(b, layer.affine if layer else None)
    args: dict[str, Any] = {
        **cells, **epilogue(layer.activation if layer else None),
        "run_first": run.first, "run_pixels": run.pixels, "run_wide": run.wide, "run_stride": run.stride,
        "strip": -(-run.pixels // strips), "strips": strips,
        "x_image": 4 * xi, "x_row": 4 * dilation[0] * xl, "x_pixel": 4 * dilation[1] * xc,
        "y_image": 4 * y.strides[0], "y_line": 4 * y.strides[2], "y_pixel": 4 * y.strides[3],
        "lines": lines, "pixels": pixels, "channels": channels, **shares._asdict(),
    }  # fmt: skip
    operands = {
        "x": (x.buffer, x.offset),
        "y": (y.buffer, y.offset),
        "rows": (b.const("offsets", values=_table(rows, 4 * xl)), 0),
        "cols": (b.const("offsets", values=_table(cols, 4 * xc)), 0),
        "scale": (scale, 0) if scale else (x.buffer, x.offset),
        "shift": (shift, 0) if shift else (x.buffer, x.offset),
    }
    b.step(kernel, n * shares.bands * shares.blocks, args, operands, [x], [y])


def _table(spans: Sequence[Span], stride: int) -> list[int]:
    """The kernel's entries, for elements ``stride`` bytes apart."""
    return [v for s in spans for v in (s.first * stride, s.length, s.share)]
