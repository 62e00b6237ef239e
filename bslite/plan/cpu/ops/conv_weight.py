"""Lowering of gradients of filters: partial sums over windows, which are added in one order.

Which windows a part sums, and in which order, depends on shapes alone.
"""

import math
from typing import NamedTuple

from bslite.kernels.contracts.cpu.update import (
    Along,
    DepthwiseUpdate,
    DepthwiseUpdateSweep,
    Filter,
    Segments,
    UpdateSweep,
    WeightUpdate,
)
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.passes.families import UPDATES
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, size_of, turned
from bslite.plan.core.windows import Window, updated_windows, volume
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.ops.reduce import sum_of_parts
from bslite.plan.cpu.outside import Parts, batch_of, behind, parts
from bslite.plan.cpu.partials import PART, PARTIALS, PARTS, parts_of_image
from bslite.plan.cpu.sharing import item_count
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import line_tiling, max_rows

CHUNK = 256  # windows summed in registers: their gradients, a panel wide, stay in L1
TOGETHER = 8  # taps beside one another that a depthwise tile sums
LINE = 64  # bytes of a line of cache
ALIASED = 2048  # bytes: pixels at multiples of it share few sets of a cache
THIN = 16  # channels of x that, with those of the taps beside them, are one run of rows


class _Pixels(NamedTuple):
    """Windows as images x planes x lines of pixels, and the strides of these axes in x and in g."""

    sizes: tuple[int, int, int, int]
    x: tuple[int, int, int, int]
    g: tuple[int, int, int, int]


@CPU.register(*UPDATES)
def lower_conv_grad_weight(b: CpuBuilder, layer: Layer) -> None:
    """Lower the gradient of a filter: windows in parts, then the sum of the parts."""
    attrs, (name_x, name_g) = layer.node.attrs, layer.node.inputs
    window = updated_windows(attrs, b.shapes[name_x], b.shapes[name_g])
    groups, cols = attrs["groups"], window.cols
    g = volume(b.read(name_g, inner=1, exact=True))
    columns, deep = g.shape[1] // groups, b.shapes[name_x][1] // groups
    x = volume(b.read(name_x, inner=1, exact=True))
    depthwise = deep == columns == 1 and groups > 1
    packs = not depthwise and 4 * cols.stride * x.strides[4] % ALIASED == 0
    if not packs:
        halo = (0, cols.before, 0, cols.after)
        x = volume(b.read(name_x, inner=1, halo=halo, exact=True))
    thin = groups == 1 and deep < THIN and cols.dilation == 1 and cols.taps > 1 and not packs
    if depthwise:
        made = _depthwise(b, x, g, window)
    else:
        made = _update(b, x, g, window, groups, thin and x.strides[4] == deep, packs)

    def finish(b: CpuBuilder) -> None:
        images, each, *rest = made.all.shape
        total = sum_of_parts(b, b.reshaped(made.all, (images * each, *rest)))
        if depthwise:
            total = b.reshaped(total, (1, *(axis.taps for axis in window), 1, rest[-1]))
            total = total.slice(5, 0, groups).permute((5, 4, 0, 1, 2, 3))
        else:
            total = b.reshaped(total, (groups, *(axis.taps for axis in window), deep, rest[-1]))
            total = total.slice(5, 0, columns).permute((0, 5, 4, 1, 2, 3))
        home = b.write(layer.name)
        b.copy(total, _apart(home, groups))

    behind(b, finish)


def summed_over_rows(b: CpuBuilder, x: View, g: View, y: View) -> None:
    """Append the steps of ``y = x^T g`` for rows ``[T, M]`` and ``[T, N]`` as they lie in memory: the
    gradient of a filter of one tap. With a batch axis in front, each product is one part; without, the rows
    are cut into parts.
    """
    if x.shape[-1] < g.shape[-1]:  # panels are made of the narrower matrix
        x, g, y = g, x, turned(y)
    batched, deep, columns = len(x.shape) == 3, x.shape[-1], g.shape[-1]
    signals = [v if batched else View(v.buffer, v.offset, (1, *v.shape), (0, *v.strides)) for v in (x, g)]
    signals = [turned(v) for v in signals]
    attrs = {"kernel": (1,), "stride": (1,), "dilation": (1,), "before": (0,)}
    window = updated_windows(attrs, *(s.shape for s in signals))
    packs = 4 * x.strides[-2] % ALIASED == 0
    made = _update(b, volume(signals[0]), volume(signals[1]), window, 1, False, packs, alone=batched)
    images, each, *_, padded = made.all.shape
    if batched:
        total = b.reshaped(made.all, (images, deep, padded))
    else:
        total = b.reshaped(sum_of_parts(b, b.reshaped(made.all, (each, deep, padded))), (deep, padded))
    b.copy(total.slice(len(total.shape) - 1, 0, columns), y)


def _apart(view: View, groups: int) -> View:
    """A filter ``[K, C, ...]`` as ``[groups, K/groups, C, D, R, S]``."""
    shape, strides, missing = view.shape, view.strides, 5 - len(view.shape)
    return View(
        view.buffer,
        view.offset,
        (groups, shape[0] // groups, shape[1], *(1,) * missing, *shape[2:]),
        (shape[0] // groups * strides[0], *strides[:2], *(0,) * missing, *strides[2:]),
    )


def _depthwise(b: CpuBuilder, x: View, g: View, window: Window) -> Parts:
    """Append the step of the partial sums ``[parts, taps, padded]`` of filters of one channel."""
    machine, channels = b.machine, g.shape[1]
    _, _, xp, xl, xc = x.strides
    taps = Filter(
        *(axis.taps for axis in window),
        *in_bytes((window.depth.dilation * xp, window.rows.dilation * xl, window.cols.dilation * xc)),
    )  # fmt: skip
    registers = -(-channels // machine.lanes)
    over = _segments(x, g, window, window.taps * channels, batch_of(b, g))
    made = parts(b, over.parts // over.each, (over.each, window.taps, registers * machine.lanes))
    wanted = -(-item_count(machine, float(size_of(g.shape)) * window.taps / machine.lanes) // over.parts)
    block = -(-registers // min(registers, wanted))
    blocks = -(-registers // block)
    together = -(-taps.cols // -(-taps.cols // TOGETHER))
    origin = x.offset + window.depth.start * xp + window.rows.start * xl + window.cols.start * xc
    record = DepthwiseUpdate(
        Operand(x.buffer, origin), g.start, made.here.start, over, taps, _inside(window, False), channels,
        registers * machine.lanes, block, blocks, together, DepthwiseUpdateSweep(together),
        DepthwiseUpdateSweep((taps.cols - 1) % together + 1),
    )  # fmt: skip
    step(b, record, over.parts * blocks, [x, g], [made.here], 6 * over.chunk)
    return made


def _update(
    b: CpuBuilder,
    x: View,
    g: View,
    window: Window,
    groups: int,
    merged: bool,
    packs: bool,
    alone: bool = False,
) -> Parts:
    """Append the step of the partial sums ``[parts, groups, taps, depth, padded]``. ``merged``: the taps of a
    row of the filter are one, whose elements of x follow on one another. ``packs``: x is packed.
    """
    machine, cols = b.machine, window.cols
    columns, deep = g.shape[1] // groups, x.shape[1] // groups
    _, _, xp, xl, xc = x.strides
    taps = Filter(
        window.depth.taps, window.rows.taps, 1 if merged else cols.taps,
        *in_bytes((window.depth.dilation * xp, window.rows.dilation * xl, cols.dilation * xc)),
    )  # fmt: skip
    depth = cols.taps * deep if merged else deep
    count = taps.deep * taps.rows * taps.cols
    over = _segments(x, g, window, groups * count * depth * columns, batch_of(b, g), alone)
    tiling = line_tiling(machine, depth, columns)
    padded = tiling.registers * machine.lanes
    shape = (over.each, groups, count, depth, padded)
    if alone:
        whole = b.dense((g.shape[0], *shape))
        made = Parts(whole, whole)
    else:
        made = parts(b, over.parts // over.each, shape)

    pixels, most = over.chunk * over.segment, max_rows(machine, tiling.width)
    lane_bytes = 4 * machine.lanes * -(-min(most, depth) // machine.lanes)
    tile_bytes = pixels * lane_bytes + LINE  # tiles do not share the sets of a cache
    near = most * max(1, machine.l2 // 4 // tile_bytes) if packs else max(most, machine.l2 // 8 // pixels)
    row_blocks = -(-depth // near)
    block_rows = -(-depth // row_blocks)
    row_blocks = -(-depth // block_rows)
    panel_bytes = 4 * pixels * tiling.width * machine.lanes
    cycles = float(size_of(g.shape)) * deep * window.taps / machine.lanes / machine.fma_ports
    wanted = -(-item_count(machine, cycles) // (over.parts * groups * row_blocks))
    most_panels = max(1, machine.l2 // 4 // panel_bytes)
    block_panels = -(-tiling.panels // max(-(-tiling.panels // most_panels), min(tiling.panels, wanted)))
    blocks = -(-tiling.panels // block_panels)
    tiles_at = block_panels * panel_bytes
    table_at = tiles_at + -(-block_rows // most) * tile_bytes * packs
    origin = x.offset + window.depth.start * xp + window.rows.start * xl + cols.start * xc
    record = WeightUpdate(
        Operand(x.buffer, origin), g.start, made.here.start, over, taps, _inside(window, packs), groups,
        *in_bytes((deep, columns)), depth, block_rows, row_blocks, most, lane_bytes, columns, padded,
        tiling.width, tiling.tail, tiling.panels, block_panels, blocks, panel_bytes, tiles_at,
        tile_bytes * packs,
        table_at, UpdateSweep(tiling.width, most), UpdateSweep(tiling.tail, most),
    )  # fmt: skip
    scratch = table_at // 4 + 6 * over.chunk
    step(b, record, over.parts * groups * row_blocks * blocks, [x, g], [made.here], scratch)
    return made


def _inside(window: Window, packs: bool) -> Along:
    """Where windows may leave x: beside it only where it is packed."""
    deep, rows, cols = window
    columns = (cols.start, cols.stride, cols.dilation, cols.have)
    if not packs or not (cols.before or cols.after):
        columns = (0, 0, 0, 1)
    return Along(
        deep.start, deep.stride, deep.dilation, deep.have, rows.start, rows.stride, rows.dilation, rows.have,
        *columns,
    )  # fmt: skip


def _merged(x: View, g: View, window: Window, apart: bool) -> _Pixels:
    """The windows; lines that follow on one another in x and in g, and leave neither, are one line. Images
    that are ``apart`` never are.
    """
    n, _, d, p, q = g.shape
    xs = [x.strides[0], *(x.strides[2 + i] * axis.stride for i, axis in enumerate(window))]
    gs = [g.strides[0], *g.strides[2:]]
    sizes = [n, d, p, q]
    free = [not apart, *(not (a.before or a.after) for a in window[:2])]
    if window.cols.before or window.cols.after:
        free[2] = False
    for axis in (2, 1, 0):
        follows = xs[axis] == sizes[3] * xs[3] and gs[axis] == sizes[3] * gs[3]
        if not free[axis] or not (sizes[axis] == 1 or follows):
            break
        sizes[3] *= sizes[axis]
        sizes[axis] = 1
    return _Pixels(tuple(sizes), tuple(xs), tuple(gs))  # type: ignore[arg-type]


def _segments(x: View, g: View, window: Window, weights: int, batch: int, alone: bool = False) -> Segments:
    """The cut of the windows of a filter of ``weights``; ``batch``: the images, here and elsewhere.
    ``alone``: one part for each image, for filters of their own.
    """
    elements = size_of(x.shape[1:]) + size_of(g.shape[1:])
    each = 1 if alone else parts_of_image(batch, size_of(g.shape[2:]), weights, elements)
    pixels = _merged(x, g, window, each > 0)
    along = pixels.sizes[3]
    cuts = -(-along // CHUNK)
    segment = -(-along // cuts)
    cuts = -(-along // segment)
    share = math.prod(pixels.sizes[:3]) * cuts
    shares = 1
    if each:
        shares = g.shape[0]
        share //= shares
    else:
        each = min(max(1, min(PARTS, PARTIALS // weights)), -(-share * segment // PART))
    part = -(-share // each)
    each = -(-share // part)
    return Segments(
        *pixels.sizes, cuts, segment, max(1, min(part, CHUNK // segment)), share, each, part, shares * each,
        *in_bytes(pixels.x), *in_bytes(pixels.g),
    )  # fmt: skip
