"""Lowerings of pooling: tables say which rows and columns each window covers."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from bslite.kernels.contracts.cpu.windows import AvgPool, MaxPool, Pool
from bslite.kernels.contracts.record import Operand
from bslite.ops.pool import WindowPool
from bslite.passes import Layer
from bslite.plan.core.bands import share
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import NO_HALO, View, size_of
from bslite.plan.core.windows import volume
from bslite.plan.cpu.banding import ITEMS
from bslite.plan.cpu.epilogue import affine, epilogue
from bslite.plan.cpu.line_sums import by_lines
from bslite.plan.cpu.ops.reduce import reduce_planes
from bslite.plan.cpu.planes import Along, pool_planes, window_table
from bslite.plan.cpu.sharing import share_image
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.shared.elementwise import normed
from bslite.plan.shared.spans import Span, adaptive_spans, spans_of

STRIP = 8  # pixels of a strip at least: windows share columns only within a strip
SHORTEST = 64  # pixels of a part of a signal


class Run(NamedTuple):
    """``pixels`` equal windows from ``first`` on: ``wide`` elements each, ``stride`` apart."""

    first: int
    pixels: int
    wide: int
    stride: int


def longest_run(spans: Sequence[Span]) -> Run:
    """The longest run of evenly spaced windows of one length and share, which the kernel sweeps along."""
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
    """The number of strips of a run, such that the rows that windows of ``tall`` rows read fit half of L1."""
    fixed = tall * (run.wide - run.stride)
    each = tall * run.stride + 1  # pixels read and written for one more pixel of the strip
    pixels = max(STRIP, (l1 // 2 // pixel_bytes - fixed) // each)
    return -(-run.pixels // pixels) or 1


@CPU.register("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d")
def lower_pool(b: CpuBuilder, layer: Layer) -> None:
    """Lower a pool with sliding windows."""
    node = layer.node
    spans, dilation = spans_of(node, b.crop.whole[node.inputs[0]][2:], b.crop.whole[layer.name][2:])
    if layer.name in b.crop.rows:
        first, start = b.crop.first(layer.name), b.crop.first(node.inputs[0])
        rows = spans[0][first : first + b.shapes[layer.name][2]]
        spans[0] = [s._replace(first=s.first - start) for s in rows]
    inner = b.inner(layer.name)
    x = b.read(node.inputs[0], inner, exact=True)
    if inner != 1:
        op = node.declaration
        assert isinstance(op, WindowPool)
        (_, wide), (_, stride), _ = op.geometry(node.attrs)
        along = Along(node.attrs["padding"][1], wide, stride)
        pool_planes(b, layer, x, b.write(layer.name), spans, dilation, along)
    else:
        _pool(b, _kernel(layer), x, b.write(layer.name), spans, dilation, layer)


@CPU.register(*(f"adaptive_{kind}_pool{axes}d" for kind in ("avg", "max") for axes in (1, 2, 3)))
def lower_adaptive_pool(b: CpuBuilder, layer: Layer) -> None:
    """Lower a pool whose windows divide the image."""
    n, c, *sizes = b.shapes[layer.node.inputs[0]]
    made = b.shapes[layer.name][2:]
    spans = [adaptive_spans(h, p) for h, p in zip(sizes, made, strict=True)]
    inner = b.inner(layer.name)
    x = b.read(layer.node.inputs[0], inner, exact=True)
    axes = len(sizes)
    if inner != 1:
        y = b.write(layer.name)
        if size_of(made) == 1:
            _whole_planes(b, layer, x, y)
        else:
            even = sizes[1] // made[1] if sizes[1] % made[1] == 0 else 0
            pool_planes(b, layer, x, y, spans, (1, 1), Along(0, even, even))
        return
    if by_lines(layer, b.shapes):
        # Threads share out lines, and each has its own in its L2. A sequence is cut into lines.
        width = sizes[-1] if axes == 2 else math.isqrt(sizes[0])
        parts = [Span(i, min(width, sizes[-1] - i), 1) for i in range(0, sizes[-1], width)]
        sums = b.line_sums.get(layer.node.inputs[0])
        if sums is None:
            sums = b.fresh((n, c, *sizes[:-1], len(parts)), 1, NO_HALO)
            lines = [[Span(i, 1, 1) for i in range(h)] for h in sizes[:-1]]
            _pool(b, AvgPool, x, sums, [*lines, parts], (1,) * axes)
        spans[-1] = [Span(0, len(parts), sizes[-1])]
        x = sums
    _pool(b, _kernel(layer), x, b.write(layer.name), spans, (1,) * axes, layer)


def _whole_planes(b: CpuBuilder, layer: Layer, x: View, y: View) -> None:
    """Append the steps that reduce planes to one pixel each."""
    after = layer.affine or layer.activation
    reduced = b.dense(y.shape) if after else y
    reduce_planes(b, "amax" if _kernel(layer) is MaxPool else "mean", x, reduced)
    if after:
        normed(b, layer.affine, layer.activation, reduced, y)


def _kernel(layer: Layer) -> type[Pool]:
    return MaxPool if "max" in layer.node.op else AvgPool


def _pool(
    b: CpuBuilder,
    kernel: type[Pool],
    x: View,
    y: View,
    spans: Sequence[Sequence[Span]],
    dilation: Sequence[int],
    layer: Layer | None = None,
) -> None:
    """Append the steps that pool x to y: ``spans`` hold the windows along each axis. The last store applies
    the batch norm and activation of ``layer``.

    A volume's windows are taken within planes, then across planes, where both exist.
    """
    missing = 3 - len(spans)
    whole: list[Sequence[Span]] = [*[[Span(0, 1, 1)]] * missing, *spans]
    planes, rows, cols = whole
    deep, tall, wide = [1] * missing + list(dilation)
    _, _, xp, xl, _ = volume(x).strides
    if not _single(planes):
        if not (_single(rows) and _single(cols)):
            n, c, d, *_ = volume(x).shape
            within = b.fresh((n, c, d, len(rows), len(cols)), 1, NO_HALO)
            each = [Span(i, 1, 1) for i in range(d)]
            sums = [[s._replace(share=1) for s in axis] for axis in (rows, cols)]
            _pool(b, kernel, x, within, [each, *sums], (1, tall, wide))
            x = within
            rows, cols = ([Span(i, 1, s.share) for i, s in enumerate(axis)] for axis in (rows, cols))
            _, _, xp, xl, _ = volume(x).strides
        lines = [
            Span(4 * (p.first * xp + r.first * xl), p.length, p.share * r.share) for p in planes for r in rows
        ]
        _pool_step(b, kernel, x, y, lines, cols, (deep * xp, wide), layer)
        return
    lines = [
        Span(4 * (p.first * xp + r.first * xl), r.length, p.share * r.share) for p in planes for r in rows
    ]
    _pool_step(b, kernel, x, y, lines, cols, (tall * xl, wide), layer)


def _single(spans: Sequence[Span]) -> bool:
    """Whether every window is one element."""
    return all(s.length == 1 for s in spans)


def _pool_step(
    b: CpuBuilder,
    kernel: type[Pool],
    x: View,
    y: View,
    rows: Sequence[Span],
    cols: Sequence[Span],
    apart: tuple[int, int],
    layer: Layer | None,
) -> None:
    """Append one pooling step: ``rows`` and ``cols`` hold a window per output line and pixel, those of lines
    with the byte where they begin; ``apart``: elements between the rows of a window, and the dilation of its
    columns. Parts of a signal alone have a step each: the items of a step are lines.
    """
    n, *_, pixels = y.shape
    alone = n < b.machine.threads and size_of(y.shape[2:]) == pixels
    parts = max(1, min(ITEMS * b.machine.threads, pixels // SHORTEST)) if alone else 1
    for i in range(parts):
        first, last = share(pixels, i, parts)
        part = y.slice(len(y.shape) - 1, first, last) if parts > 1 else y
        _pool_pixels(b, kernel, x, part, rows, cols[first:last], apart, layer)


def _pool_pixels(
    b: CpuBuilder,
    kernel: type[Pool],
    x: View,
    y: View,
    rows: Sequence[Span],
    cols: Sequence[Span],
    apart: tuple[int, int],
    layer: Layer | None,
) -> None:
    """Append the step of some pixels of each line; see `_pool_step`."""
    n, channels, planes, lines, pixels = volume(y).shape
    xi, _, _, _, xc = volume(x).strides
    yi, _, yp, yl, yc = volume(y).strides
    registers = -(-channels // b.machine.lanes)
    loads = n * registers * sum(s.length for s in rows) * sum(s.length for s in cols)
    work = 1.5 * loads + 16.0 * n * registers * planes * lines * pixels
    shares = share_image(b.machine, n, planes * lines, channels, work)
    run = longest_run(cols)
    if apart[1] != 1 or (run.stride > 1 and 4 * size_of(x.shape[1:]) > b.machine.l2):
        run = Run(0, 0, 0, 0)  # data from beyond L2 is best read in memory order
    tall = max(s.length for s in rows)
    strips = strip_count(run, tall, 4 * channels, b.machine.l1)
    record = kernel(
        x.start, y.start, Operand(b.const("offsets", values=window_table(rows, 1)), 0),
        Operand(b.const("offsets", values=window_table(cols, 4 * xc)), 0),
        affine(b, layer.affine if layer else None, x.start), epilogue(layer.activation if layer else None),
        x_image=4 * xi, x_row=4 * apart[0], x_pixel=4 * apart[1] * xc, y_image=4 * yi, y_plane=4 * yp,
        y_line=4 * yl, y_pixel=4 * yc, plane_lines=lines, lines=planes * lines, pixels=pixels,
        channels=channels, shares=shares, run_first=run.first, run_pixels=run.pixels, run_wide=run.wide,
        run_stride=run.stride, strip=-(-run.pixels // strips), strips=strips,
    )  # fmt: skip
    step(b, record, n * shares.bands * shares.blocks, [x], [y])
