"""Convolutions of planes: images, signals and volumes whose pixels are contiguous, channel by channel."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bslite.kernels.contracts.cpu.conv_planes import ConvPlanes, Gathered
from bslite.kernels.contracts.cpu.sweep import PlaneSweep
from bslite.kernels.contracts.record import Operand
from bslite.machine import Machine
from bslite.passes import Layer
from bslite.plan.core.views import View
from bslite.plan.core.windows import NONE, Axis, Window, volume
from bslite.plan.cpu.epilogue import epilogue
from bslite.plan.cpu.ops.depthwise import in_registers
from bslite.plan.cpu.reduction import leaves_out_columns, reduction
from bslite.plan.cpu.sharing import item_count, share_planes
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import cut_line
from bslite.plan.shared.conv import Filters

FEW = 4  # lines of images for each line of a strip, up to which they are worth keeping in L1
COPY, COPY_LINE = 9.0, 8.0  # cycles of a register and of a line that are copied
FINISH, FINISH_LINE = 10.0, 3.0  # and of those that are finished


class Tile(NamedTuple):
    """Register tiles: at most ``most`` outputs (or ``lines`` of one) by ``vecs`` registers of pixels."""

    most: int
    vecs: int
    lines: bool


class Work(NamedTuple):
    """What a line of a strip takes: ``images`` lines of scratch memory, beside the ``more`` that a filter
    reaches over, ``wider`` than the strip; multiply-adds and outputs of a pixel.
    """

    images: int
    more: int
    wider: int
    sums: int
    outputs: int

    def cycles(self, machine: Machine, pixels: int) -> float:
        """Of a line of so many pixels."""
        registers = -(-pixels // machine.lanes)
        copied = self.images * (COPY * registers + COPY_LINE)
        made = self.outputs * (FINISH * registers + FINISH_LINE)
        return self.sums / machine.fma_ports * registers + copied + made


class Strips(NamedTuple):
    """How a plane is cut: lines and pixels of a strip, and strips down and across."""

    lines: int
    pixels: int
    down: int
    across: int


def conv_planes(
    b: CpuBuilder, layer: Layer, x: View, y: View, residual: View | None, window: Window, filters: Filters
) -> None:
    """Append the step of a convolution of planes of contiguous pixels from x to y, with constant weights.

    The sums have the order and the parts that they have in a convolution of images, and so the same bits.
    """
    machine, lanes, params = b.machine, b.machine.lanes, layer.node.params
    window, (x, y, *added) = _merged(window, [volume(v) for v in (x, y, residual) if v is not None])
    deep, rows, cols = window
    n, channels, depths, lines, pixels = y.shape
    groups, inputs, outputs = filters.groups, filters.group_depth, filters.group_channels
    bias_first = in_registers(machine, layer, filters, window.taps)
    part = _part(window, filters, bias_first)
    tile = _tile(machine, window, filters, part)
    cut = cut_line(outputs, 1 if tile.lines else tile.most)
    at_once = min(tile.most, rows.taps) if tile.lines else 0
    phases = sorted({(_phase(rows, i), _phase(cols, j)) for i in range(rows.taps) for j in range(cols.taps)})
    more, wider = ((axis.taps - 1) * axis.dilation // axis.stride for axis in (rows, cols))
    work = Work(inputs * deep.taps * len(phases), more, wider, inputs * window.taps * outputs, outputs)
    planes = n * groups * depths
    cycles = planes * lines * work.cycles(machine, pixels)
    strips = _strips(machine, lines, pixels, work, tile, -(-item_count(machine, cycles) // planes))
    pitch, stored = strips.pixels + wider, strips.lines + more
    run = strips.pixels if tile.lines else (strips.lines - 1) * pitch + strips.pixels
    registers = -(-run // lanes)
    vecs = -(-registers // -(-registers // tile.vecs))
    whole = -(-run // (vecs * lanes)) * vecs * lanes  # tiles write all of their registers
    sums_at = -(-(work.images * stored * pitch + (vecs + 1) * lanes) // lanes) * lanes  # and read them

    def place(k: int, i: int, j: int, c: int) -> int:
        """The bytes to what a tap and input meet first."""
        phase = phases.index((_phase(rows, i), _phase(cols, j)))
        line = ((c * deep.taps + k) * len(phases) + phase) * stored + i * rows.dilation // rows.stride
        return 4 * (line * pitch + j * cols.dilation // cols.stride)

    by_row = bias_first and not filters.depthwise
    terms = [place(*term) for term in _terms(window, inputs, by_row, 1 if tile.lines else rows.taps)]
    weights = b.const(
        "plane_filters_by_row" if by_row else "plane_filters", params["weight"], groups=groups,
        tiles=[cut.rows1] * cut.tiles1 + [cut.rows2] * cut.tiles2,
    )  # fmt: skip
    biases = [params["bias"]] if "bias" in params else []
    bias = b.const("bias_panels", *biases, channels=channels, lanes=1, groups=1)
    gathered = Gathered(
        Operand(b.const("offsets", values=[cell for phase in phases for cell in phase]), 0), len(phases),
        deep.taps, stored, more, pitch, first=(deep.start, rows.start, cols.start),
        size=(deep.have, rows.have, cols.have), stride=(deep.stride, rows.stride, cols.stride),
        apart=deep.dilation, ahead=4 * strips.pixels * cols.stride if strips.across > 1 else 0,
    )  # fmt: skip
    shares, items = share_planes(machine, planes, strips.down * strips.across, cycles)
    r = added[0] if added else y
    record = ConvPlanes(
        x.start, y.start, Operand(weights, 0), Operand(bias, 0), r.start,
        Operand(b.const("offsets", values=terms), 0), len(added), gathered, *_steps(x), *_steps(y),
        *_steps(r), groups=groups, inputs=inputs, outputs=outputs, depths=depths, lines=lines, pixels=pixels,
        strip_lines=strips.lines, strip_pixels=strips.pixels, strips=strips.down * strips.across,
        across=strips.across, terms=len(terms), part=part, cut=cut, lines_at_once=at_once,
        filter_rows=rows.taps if tile.lines else 1, sums_at=sums_at,
        sums_pitch=whole if tile.lines else pitch, sums_size=whole * max(at_once, 1), vecs=vecs,
        sweep=PlaneSweep(vecs, tile.most, bias_first, tile.lines), end=epilogue(layer.activation),
        shares=shares,
    )  # fmt: skip
    step(b, record, items, [x, *added], [y], sums_at + record.sums_size * cut.rows1 + lanes)


def _steps(view: View) -> tuple[int, tuple[int, int, int], int]:
    """Bytes between images, between planes, lines and pixels, and between channels."""
    image, channel, plane, line, pixel = view.strides
    return 4 * image, (4 * plane, 4 * line, 4 * pixel), 4 * channel


def _phase(axis: Axis, tap: int) -> int:
    """The elements from the beginning of a window to the first one that a tap has in any window."""
    return tap * axis.dilation % axis.stride


def _merged(window: Window, views: Sequence[View]) -> tuple[Window, list[View]]:
    """The same convolution with lines as parts of one line, and planes too, where windows allow it."""
    views = list(views)
    for name, axis in (("rows", 3), ("depth", 2)):
        outer, inner = window[axis - 2], window.cols
        if not (_single(outer) and _single(inner) and all(_follow(v, axis) for v in views)):
            break
        size = outer.made * inner.made
        window = window._replace(cols=inner._replace(have=size, made=size), **{name: NONE})
        views = [_as_one_line(v, axis, size) for v in views]
    return window, views


def _follow(view: View, axis: int) -> bool:
    """Whether lines of pixels follow one another along an axis."""
    return view.strides[4] == 1 and (view.shape[axis] == 1 or view.strides[axis] == view.shape[4])


def _as_one_line(view: View, axis: int, size: int) -> View:
    shape, strides = list(view.shape), list(view.strides)
    shape[axis], shape[4], strides[axis] = 1, size, 0
    return View(view.buffer, view.offset, tuple(shape), tuple(strides))


def _single(axis: Axis) -> bool:
    """Whether each window is the element of its number."""
    return (axis.taps, axis.stride, axis.start) == (1, 1, 0) and axis.have == axis.made


def _part(window: Window, filters: Filters, bias_first: bool) -> int:
    """Terms of a running sum."""
    inputs, terms = filters.group_depth, filters.group_depth * window.taps
    if bias_first:
        return terms
    deep, rows, cols = window
    sums = reduction(
        rows.taps, cols.taps, inputs, 0, 0, False, deep.taps, 0, leaves_out_columns(cols, inputs)
    )
    return sums.chunk_taps * sums.depth


def _tile(machine: Machine, window: Window, filters: Filters, part: int) -> Tile:
    """The register tiles: a register for each of a tile's registers of pixels, and two for weights."""
    deep, rows, _ = window
    narrow = machine.registers // 8
    wide = 2 * narrow
    tall, low = ((machine.registers - vecs - 2) // vecs for vecs in (narrow, wide))
    alone = filters.group_depth == filters.group_channels == deep.taps == rows.stride == rows.dilation == 1
    if alone and window.taps == part and rows.taps > 1:
        return Tile(tall, narrow, lines=True)
    return Tile(low, wide, lines=False) if filters.group_channels <= low else Tile(tall, narrow, lines=False)


def _terms(window: Window, inputs: int, by_row: bool, rows: int) -> Iterator[tuple[int, int, int, int]]:
    """The terms of a sum in their order: taps along planes, ``rows`` and columns, and the input. ``by_row``:
    a row of the filter for one input after the other.
    """
    for k in range(window.depth.taps):
        for i in range(rows):
            if by_row:
                yield from ((k, i, j, c) for c in range(inputs) for j in range(window.cols.taps))
            else:
                yield from ((k, i, j, c) for j in range(window.cols.taps) for c in range(inputs))


def _strips(machine: Machine, lines: int, pixels: int, work: Work, tile: Tile, wanted: int) -> Strips:
    """The strips with the least work, at least ``wanted`` of them, of those whose input stays in cache."""
    room = (machine.l1 // 2 if work.images <= FEW else machine.l2 // 4) // 4
    least = tile.vecs * machine.lanes
    best, price = Strips(1, min(least, pixels), lines, -(-pixels // least)), math.inf
    for width in (pixels, *(least << i for i in range((pixels // least).bit_length()))):
        across = -(-pixels // width)
        most = room // (work.images * (width + work.wider)) - work.more
        most = min(most, -(-lines // -(-wanted // across)))
        if most < 1 or width > pixels or lines * across < min(wanted, lines * -(-pixels // least)):
            continue
        down = -(-lines // most)
        tall = -(-lines // down)
        copied = work.images * (1 + work.more / tall) * (COPY * (1 + work.wider / width))
        each = copied + (work.images * COPY_LINE + work.outputs * FINISH_LINE) * machine.lanes / width
        if not tile.lines:
            each += work.sums * work.wider / width  # sums between the lines of a run
        if each * across * width < price:
            best, price = Strips(tall, width, down, across), each * across * width
    return best
