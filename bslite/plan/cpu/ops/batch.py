"""Lowerings of a batch's statistics, and of the gradient of a batch norm."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bslite.kernels.contracts.cpu.batch import (
    BatchGradient,
    BatchGradientLine,
    BatchMoments,
    BatchProducts,
    BatchTotals,
    GSteps,
    Products,
)
from bslite.kernels.contracts.cpu.rows import ChannelMoments, Lines, XSteps, YSteps
from bslite.kernels.contracts.cpu.shares import Shares
from bslite.kernels.contracts.record import Operand, StepRecord
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import NO_HALO, View, size_of
from bslite.plan.cpu.group_norm import lines_of, lines_of_band
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.outside import Parts, batch_of, behind, parts
from bslite.plan.cpu.sharing import item_count, share_image
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.shared.conv import residual_of


class _Batch(NamedTuple):
    """Values of one shape as lines of pixels; ``steps`` are the strides of image, line and pixel of each."""

    images: int
    size: Lines
    steps: Sequence[tuple[int, ...]]
    views: Sequence[View]

    @property
    def loads(self) -> int:
        """Registers of one of the values."""
        return self.images * self.size.lines * self.size.pixels * self.size.padded


def _batch(b: CpuBuilder, *given: View) -> _Batch:
    views = [_as_pixels(view) for view in given]
    if lines_of(*views) is None:  # the pixels lie along too many axes
        plain = [b.fresh(v.shape, 1, NO_HALO) for v in views]
        for view, copy in zip(views, plain, strict=True):
            b.copy(view, copy)
        views = plain
    found = lines_of(*views)
    assert found is not None
    (lines, pixels), runs = found
    images, channels = views[0].shape[:2]
    pair = 2 * b.machine.lanes  # kernels take two registers of channels at once
    size = Lines(lines, pixels, channels, -(-channels // pair) * pair)
    steps = [in_bytes((v.strides[0], *run)) for v, run in zip(views, runs, strict=True)]
    return _Batch(images, size, steps, views)


def _as_pixels(view: View) -> View:
    """Images of one pixel as one image of as many pixels."""
    if any(n > 1 for n in view.shape[2:]):
        return view
    (n, channels), (apart, along) = view.shape[:2], view.strides[:2]
    return View(view.buffer, view.offset, (1, channels, n), (0, along, apart))


def _cut(b: CpuBuilder, batch: _Batch, passes: int) -> tuple[Shares, int]:
    """Bands of lines, whose size depends on shapes alone, and blocks of channels; the number of bands."""
    lines, pixels = batch.size.lines, batch.size.pixels
    band_lines = lines_of_band(lines, pixels)
    bands = -(-lines // band_lines)
    cycles = passes * batch.loads / b.machine.lanes
    blocks = share_image(b.machine, batch.images * bands, 1, batch.size.channels, cycles)
    return Shares(band_lines, bands, blocks.blocks, blocks.block_registers), bands


def _merge(
    b: CpuBuilder, layer: Layer, channels: int, made: Parts, count: int,
    record: Callable[[View, int], StepRecord],
) -> None:  # fmt: skip
    """Behind all images, append the step that merges ``count`` parts, which they ``made``, into the layer's
    value. ``record``: of that value, and of the registers of channels of an item.
    """

    def finish(b: CpuBuilder) -> None:
        y, home = b.writable(layer.name, 1)
        registers = -(-channels // b.machine.lanes)
        block = -(-registers // min(registers, item_count(b.machine, 4.0 * registers * count)))
        step(b, record(y, block), -(-registers // block), [made.all], [y])
        if y is not home:
            b.copy(y, home)

    behind(b, finish)


@CPU.register("batch_stats")
def lower_batch_stats(b: CpuBuilder, layer: Layer) -> None:
    """Moments of bands of lines, and what they are together."""
    batch = _batch(b, b.read(layer.node.inputs[0], inner=1, exact=True))
    (x,), (steps,), size = batch.views, batch.steps, batch.size
    cut, bands = _cut(b, batch, 3)
    moments = parts(b, batch.images, (bands * 3 * size.padded,))
    first = ChannelMoments(x.start, moments.here.start, XSteps(*steps), size, cut)
    step(b, first, batch.images * bands * cut.blocks, [x], [moments.here])

    images = moments.all.shape[0]

    def merged(y: View, block: int) -> BatchMoments:
        return BatchMoments(
            moments.all.start, y.start, in_bytes((y.strides[0],))[0], images, bands, cut.band_lines, size,
            block,
        )  # fmt: skip

    _merge(b, layer, size.channels, moments, 2 * images * bands, merged)


@CPU.register("batch_sums")
def lower_batch_sums(b: CpuBuilder, layer: Layer) -> None:
    """Sums of bands of lines, and their totals."""
    name_g, name_x, stats, *affine = layer.node.inputs
    batch = _batch(b, *(b.read(name, inner=1, exact=True) for name in (name_g, name_x)))
    means, numbers = b.read(stats, inner=1, exact=True), [b.read(name, exact=True) for name in affine]
    (g, x), size = batch.views, batch.size
    cut, bands = _cut(b, batch, 2)
    partials = parts(b, batch.images, (bands * 2 * 2 * size.padded,))  # in float64
    first = BatchProducts(
        g.start, x.start, means.start, *_starts(numbers, means), partials.here.start,
        GSteps(*batch.steps[0]), XSteps(*batch.steps[1]), size, cut, Products(layer.node.attrs["through"]),
    )  # fmt: skip
    step(b, first, batch.images * bands * cut.blocks, [g, x, means, *numbers], [partials.here])

    count = partials.all.shape[0] * bands

    def merged(y: View, block: int) -> BatchTotals:
        return BatchTotals(
            partials.all.start, y.start, in_bytes((y.strides[0],))[0], count, size.channels, size.padded,
            block,
        )  # fmt: skip

    _merge(b, layer, size.channels, partials, count, merged)


def _starts(numbers: Sequence[View], other: View) -> list[Operand]:
    """The scale and shift of channels; without them, what is there instead is not looked at."""
    return [view.start for view in (numbers or (other, other))]


@CPU.register("batch_norm_grad")
def lower_batch_norm_grad(b: CpuBuilder, layer: Layer) -> None:
    """One pass over gradient and input, with a residual in its store."""
    (name_g, name_x, *names), attrs = layer.node.inputs, layer.node.attrs
    stats, sums = (b.read(name, inner=1, exact=True) for name in names[:2])
    scale, *shift = (b.read(name, exact=True) for name in names[2:])
    y, home = b.writable(layer.name, 1)
    residual = residual_of(b, layer, inner=1)
    added = [] if residual is None else [residual]
    batch = _batch(b, *(b.read(name, inner=1, exact=True) for name in (name_g, name_x)), y, *added)
    (g, x, made, *_), size = batch.views, batch.size
    r, step_r = batch.views[-1], batch.steps[-1]
    cut = share_image(b.machine, batch.images, size.lines, size.channels, 6 * batch.loads)
    elements = batch_of(b, y) * size_of(y.shape[2:])
    rows = [row.start for pair in (stats, sums) for row in (pair, pair.slice(0, 1, 2))]
    record = BatchGradient(
        g.start, x.start, made.start, r.start, *rows,
        scale.start, (shift or [scale])[0].start, GSteps(*batch.steps[0]), XSteps(*batch.steps[1]),
        YSteps(*batch.steps[2]), *step_r, len(added), 1.0 / elements, attrs["eps"], size, cut,
        BatchGradientLine(attrs["through"]),
    )  # fmt: skip
    items = batch.images * cut.bands * cut.blocks
    step(b, record, items, [g, x, *batch.views[3:], stats, sums, scale, *shift], [made], 5 * size.padded)
    if made.buffer != y.buffer:
        b.copy(made, _as_pixels(y))
    if y is not home:
        b.copy(y, home)
