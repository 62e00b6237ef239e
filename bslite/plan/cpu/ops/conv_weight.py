"""Lowering of gradients of filters: partial sums over windows, which are added in one order.

Which windows a part sums, and in which order, depends on shapes alone.
"""

import math
from typing import NamedTuple

from bslite.kernels.contracts.cpu.update import Along, Filter, Segments, UpdateSweep, WeightUpdate
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, size_of
from bslite.plan.core.windows import Axis, Window, three, volume
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.ops.reduce import sum_of_parts
from bslite.plan.cpu.sharing import item_count
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import line_tiling, max_rows

CHUNK = 256  # windows summed in registers: their gradients, a panel wide, stay in L1
THIN = 16  # channels of x that, with those of the taps beside them, are one run of rows
PART = 1024  # windows of a part, of which ...
PARTS = 64  # ... there are so many at most, and no more than make ...
PARTIALS = 1 << 22  # ... so many partial sums


class _Pixels(NamedTuple):
    """Windows as images x planes x lines of pixels, and the strides of these axes in x and in g."""

    sizes: tuple[int, int, int, int]
    x: tuple[int, int, int, int]
    g: tuple[int, int, int, int]


@CPU.register("conv1d_grad_weight", "conv2d_grad_weight", "conv3d_grad_weight")
def lower_conv_grad_weight(b: CpuBuilder, layer: Layer) -> None:
    """Lower the gradient of a filter: windows in parts, then the sum of the parts."""
    attrs, (name_x, name_g) = layer.node.attrs, layer.node.inputs
    window = three(
        [
            Axis(taps, stride, dilation, -before, have, made)
            for taps, stride, dilation, before, have, made in zip(
                attrs["kernel"], attrs["stride"], attrs["dilation"], attrs["before"],
                b.shapes[name_x][2:], b.shapes[name_g][2:], strict=True,
            )
        ]
    )  # fmt: skip
    halo = (0, window.cols.before, 0, window.cols.after)
    x = volume(b.read(name_x, inner=1, halo=halo, exact=True))
    g = volume(b.read(name_g, inner=1, exact=True))
    _, _, xp, xl, xc = x.strides
    groups, columns, deep = attrs["groups"], g.shape[1] // attrs["groups"], x.shape[1] // attrs["groups"]
    cols = window.cols
    merged = groups == 1 and cols.dilation == 1 and xc == deep and cols.taps > 1 and deep < THIN
    taps = Filter(
        window.depth.taps, window.rows.taps, 1 if merged else cols.taps,
        *in_bytes((window.depth.dilation * xp, window.rows.dilation * xl, cols.dilation * xc)),
    )  # fmt: skip
    depth = cols.taps * deep if merged else deep
    count = taps.deep * taps.rows * taps.cols
    tiling = line_tiling(b.machine, depth, columns)
    padded = tiling.registers * b.machine.lanes
    over = _segments(_merged(x, g, window), groups * count * depth * columns)
    made = b.dense((over.parts, groups, count, depth, padded))
    origin = x.offset + window.depth.start * xp + window.rows.start * xl + cols.start * xc
    lowest = min(b.machine.l2 // 2 // (4 * CHUNK), depth)
    row_blocks = -(-depth // max(lowest, max_rows(b.machine, tiling.width)))
    block_rows = -(-depth // row_blocks)
    cycles = float(size_of(g.shape)) * deep * count / b.machine.lanes / b.machine.fma_ports
    wanted = -(-item_count(b.machine, cycles) // (over.parts * groups * row_blocks))
    block_panels = -(-tiling.panels // min(tiling.panels, wanted))
    blocks = -(-tiling.panels // block_panels)
    panel = over.chunk * over.segment * tiling.width * b.machine.lanes
    record = WeightUpdate(
        Operand(x.buffer, origin), g.start, made.start, over, taps, _inside(window), groups,
        *in_bytes((deep, columns)), depth, block_rows, row_blocks, columns, padded, tiling.width, tiling.tail,
        tiling.panels, block_panels, blocks, 4 * panel,
        sweep=_sweep(b, tiling.width), tail_sweep=_sweep(b, tiling.tail),
    )  # fmt: skip
    step(b, record, over.parts * groups * row_blocks * blocks, [x, g], [made], panel + 6 * over.chunk)
    total = sum_of_parts(b, made)
    shape = (groups, *(axis.taps for axis in window), deep, padded)
    total = b.reshaped(total, shape).slice(5, 0, columns).permute((0, 5, 4, 1, 2, 3))
    kept = b.shapes[layer.name]
    home = b.write(layer.name)
    b.copy(total, _apart(home, groups, 3 - (len(kept) - 2)))


def _apart(view: View, groups: int, missing: int) -> View:
    """A filter ``[K, C, ...]`` as ``[groups, K/groups, C, D, R, S]``."""
    shape, strides = view.shape, view.strides
    return View(
        view.buffer,
        view.offset,
        (groups, shape[0] // groups, shape[1], *(1,) * missing, *shape[2:]),
        (shape[0] // groups * strides[0], *strides[:2], *(0,) * missing, *strides[2:]),
    )


def _sweep(b: CpuBuilder, vecs: int) -> UpdateSweep:
    return UpdateSweep(vecs, max_rows(b.machine, vecs))


def _inside(window: Window) -> Along:
    """Planes and rows where windows may leave x."""
    deep, rows, _ = window
    return Along(
        deep.start, deep.stride, deep.dilation, deep.have, rows.start, rows.stride, rows.dilation, rows.have
    )


def _merged(x: View, g: View, window: Window) -> _Pixels:
    """The windows; lines that follow on one another in x and in g, and leave neither, are one line."""
    n, _, d, p, q = g.shape
    xs = [x.strides[0], *(x.strides[2 + i] * axis.stride for i, axis in enumerate(window))]
    gs = [g.strides[0], *g.strides[2:]]
    sizes = [n, d, p, q]
    free = [True, *(not (a.before or a.after) for a in (window.depth, window.rows))]
    for axis in (2, 1, 0):
        follows = xs[axis] == sizes[3] * xs[3] and gs[axis] == sizes[3] * gs[3]
        if not free[axis] or not (sizes[axis] == 1 or follows):
            break
        sizes[3] *= sizes[axis]
        sizes[axis] = 1
    return _Pixels(tuple(sizes), tuple(xs), tuple(gs))  # type: ignore[arg-type]


def _segments(pixels: _Pixels, size: int) -> Segments:
    """The cut of the windows for a filter of ``size`` weights."""
    along = pixels.sizes[3]
    cuts = -(-along // CHUNK)
    segment = -(-along // cuts)
    cuts = -(-along // segment)
    total = math.prod(pixels.sizes[:3]) * cuts
    most = max(1, min(PARTS, PARTIALS // size))
    parts = min(most, -(-total * segment // PART))
    part = -(-total // parts)
    return Segments(
        *pixels.sizes, cuts, segment, max(1, min(part, CHUNK // segment)), part, -(-total // part),
        *in_bytes(pixels.x), *in_bytes(pixels.g),
    )  # fmt: skip
