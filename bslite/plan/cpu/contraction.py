"""The "conv" step: convolution, linear layers and matmul as batch-reduce GEMM over lines of pixels."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from bslite.kernels.contracts.cpu.cells import Cells
from bslite.kernels.contracts.cpu.gemm import Columns, Conv, PlaneRows, Turned, Windows
from bslite.kernels.contracts.cpu.sweep import Narrow, Widen
from bslite.kernels.contracts.record import Operand
from bslite.machine import Machine
from bslite.passes import Layer
from bslite.plan.core.builder import PAGE
from bslite.plan.core.views import NO_HALO, View, with_halo
from bslite.plan.cpu.epilogue import epilogue
from bslite.plan.cpu.packing import Pack
from bslite.plan.cpu.reduction import Reduction
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import (
    Items,
    LineTiling,
    across_tiling,
    choose_items,
    line_length,
    line_tiling,
    max_rows,
    sweep,
)

WAYS = 8  # of L1: the number of rows a page apart that can be in use together
WORTH = 256  # outputs, from which on a product gains more than a copy of its rows takes
WIDEN = 64  # pixels of an item, from which on tiles read panels of 16 bits as float32, written once for all

Geometry = dict[str, tuple[int, int, int]]


class Lines(NamedTuple):
    """Pixels as ``lines`` of each of ``images``; ``rest`` pixels after the last line are a shorter one."""

    images: int
    lines: int
    pixels: int
    rest: int = 0


def merge_lines(
    b: CpuBuilder, n: int, p: int, q: int, channels: int, geometry: Geometry
) -> tuple[Lines, Geometry]:
    """Where pixels are evenly spaced across lines (and images), cut them into new lines that suit the
    register tile.
    """
    used = [g for g in geometry.values() if g != (0, 0, 0)]
    if p > 1 and all(line == q * col for _, line, col in used):
        q, p = q * p, 1
    if n > 1 and p == 1 and all(image == q * col for image, _, col in used):
        q, n = q * n, 1
    if p > 1:
        return Lines(n, p, q), geometry
    return cut_lines(b, n, q, channels, geometry)


def cut_lines(b: CpuBuilder, n: int, q: int, channels: int, geometry: Geometry) -> tuple[Lines, Geometry]:
    """Lines of ``q`` pixels, one for each image, cut into shorter ones that suit the register tile."""
    length = line_length(b.machine, q, channels, n)
    recut = {key: (image, length * col, col) for key, (image, _, col) in geometry.items()}
    return Lines(n, q // length, length, q % length), recut


def rows_apart(b: CpuBuilder, rows: View, outputs: int = WORTH) -> View:
    """The rows ``[..., M, K]`` of a product, or a copy of them where those of a tile would meet in one set of
    L1: rows of the caller's may, while buffers have room between theirs (`Builder.fresh`).

    With few ``outputs`` a copy would take longer than what it saves.
    """
    if rows.shape[-2] <= WAYS or 4 * rows.strides[-2] % PAGE or outputs < WORTH:
        return rows
    made = b.fresh(rows.shape, len(rows.shape) - 1, NO_HALO)
    b.copy(rows, made)
    return made


class Planes(NamedTuple):
    """The planes of a volume: output lines of a plane, and elements between planes."""

    lines: int
    x: int = 0
    y: int = 0
    r: int = 0


class Clipped(NamedTuple):
    """The places of windows, and the taps and rows (or planes) of a filter; ``row_taps`` 0: all inside.
    ``plane_rows``, ``columns``: of what else is left out where it is not inside.
    """

    windows: Windows = Windows()
    row_taps: int = 0
    filter_rows: int = 0
    plane_rows: PlaneRows = PlaneRows()
    columns: Columns = Columns()

    def after(self, lines: int) -> "Clipped":
        """The same for the pixels after so many lines, which a line of pixels was cut into."""
        it = self.columns
        return self._replace(columns=replace(it, left=it.left + lines * it.line_pixels * it.across))

    def by_tiles(self, most: int) -> "Clipped":
        """The same for register tiles of at most so many pixels."""
        return self._replace(columns=replace(self.columns, most_rows=most))


INSIDE = Clipped()


def contraction(
    b: CpuBuilder,
    layer: Layer,
    x: Operand,
    y: View,
    residual: View | None,
    size: Lines,
    geometry: Geometry,
    terms: Reduction,
    channels: int,
    halo_reads: View,
    groups: int = 1,
    group_depth: int = 0,
    pack: Pack | None = None,
    clipped: Clipped = INSIDE,
    bias: str | View | None = None,
    planes: Planes | None = None,
    recipe: str = "panels",
    how: Mapping[str, Any] | None = None,
    panel: int = 0,
    dots: bool = False,
    across: bool = False,
    deep: int = 1,
) -> None:
    """Append one "conv" step over ``size``, and another one over the rest, if there is one.

    The weights are the layer's parameter, or panels that ``pack`` computes by steps of its own: it gives
    their view, the element where the first image's weights start, and the elements between two images'
    weights. ``group_depth``: input channels of a group, 0 for a single group. ``clipped``: the windows that
    leave the image, if any. ``bias``: in panels, a constant or a value, in place of the layer's. ``planes``:
    where lines are those of several planes. ``recipe``, ``how``: what packs the parameter. ``panel``: the
    registers of a panel, if they are given. ``dots``: x and weights are cells of two bfloat16. ``across``:
    lanes run along the sum. ``deep``: for filters of so many planes and of one row, else 1.
    """
    images, lines, pixels, rest = size
    machine = b.machine
    group_channels = channels // groups
    narrow = Narrow.NO
    if recipe == "panels" and not (pack or how):
        narrow = b.tuning.in_memory(layer.node.params["weight"], terms.size * channels)
    packed_already = 0 if pack or across else b.tuning.packed.get(layer.node.params["weight"], 0)
    tiling = (
        across_tiling(machine, pixels, channels)
        if across
        else line_tiling(machine, pixels, group_channels, panel, packed_already)
    )
    if packed_already and not panel and images == lines == 1:
        depth = terms.size * groups
        tiling = _as_packed(machine, tiling, pixels, group_channels, depth, packed_already, narrow.bytes)
    panel_bytes = narrow.bytes * terms.size * tiling.width * machine.lanes
    (xi, xl, xc), (yi, yl, yc), (ri, rl, rc) = geometry["x"], geometry["y"], geometry["r"]
    items = choose_items(
        machine, images, lines, tiling.panels * groups, tiling.cycles * images * lines * groups * terms.size,
        4 * lines * max(abs(xl), pixels * abs(xc)), panel_bytes * tiling.panels * groups,
        4 * lines * pixels * channels,
    )  # fmt: skip
    planes = planes or Planes(lines)
    strips = 1
    if deep > 1:
        line_bytes = 4 * deep * max(abs(xl), pixels * abs(xc))
        strips = _strips(machine, planes.lines, line_bytes, panel_bytes * tiling.panels * groups)
    if strips > 1:
        band_lines = planes.lines // strips
        items = Items(band_lines, lines // band_lines, tiling.panels * groups, 1, False)
    widen, wide_bytes = None, 0
    if narrow and items.band_lines * pixels >= WIDEN:
        widen, wide_bytes = Widen(narrow), 4 * terms.chunk_taps * terms.depth * tiling.width * machine.lanes
    swept = Narrow.NO if widen else narrow
    reads = [with_halo(halo_reads)] + ([residual] if residual is not None else [])
    weights_image = 0
    if pack is None:
        wide = {} if across else {"width": tiling.width, "groups": groups}
        if narrow:
            wide["narrow"] = int(narrow)
        packs = "narrow_panels" if narrow else recipe
        panels = b.const(
            packs, layer.node.params["weight"], lanes=machine.lanes, **wide, **(how or {})
        )  # fmt: skip
        weights = Operand(panels, 0)
    else:
        packed, at, weights_image = pack(tiling)
        weights = Operand(packed.buffer, packed.offset + at)
        reads.append(packed)
    if isinstance(bias, View):
        biases = bias.start
        reads.append(bias)
    else:
        own = layer.node.params.get("bias")
        how_bias = {"channels": channels, "lanes": machine.lanes, "groups": groups}
        biases = Operand(bias or b.const("bias_panels", *([own] if own else []), **how_bias), 0)
    table = b.const("offsets", values=[4 * o for o in terms.offsets])
    record = Conv(
        x, y.start, residual.start if residual is not None else y.start, weights, biases,
        Operand(table, 0), has_residual=int(residual is not None),
        x_image=4 * xi, x_line=4 * xl, x_col=4 * xc, y_image=4 * yi, y_line=4 * yl, y_col=4 * yc,
        residual_image=4 * ri, residual_line=4 * rl, residual_col=4 * rc,
        images=images, lines=lines, **items._asdict(), panels=tiling.panels * groups,
        taps=len(terms.offsets), chunk_taps=terms.chunk_taps, depth=terms.depth,
        **clipped.by_tiles(max_rows(machine, tiling.width))._asdict(), plane_lines=planes.lines,
        strips=strips, x_plane=4 * planes.x, y_plane=4 * planes.y, residual_plane=4 * planes.r,
        group_panels=tiling.panels, group_channels=group_channels, x_group_bytes=4 * group_depth,
        group_weight_bytes=narrow.bytes * terms.size * machine.lanes * tiling.registers,
        register_bytes=narrow.bytes * machine.lanes, widen=widen, wide_bytes=wide_bytes,
        width=tiling.width, tail_vecs=tiling.tail,
        across_bytes=4 * channels * machine.lanes * -(-terms.depth // machine.lanes) if across else 0,
        cut=tiling.cut, sweep=sweep(machine, tiling.width, dots, channels * across, swept),
        tail_sweep=sweep(machine, tiling.tail, dots, channels * across, swept),
        minus_inf=-math.inf, plus_inf=math.inf, end=epilogue(layer.activation),
        weights_image=4 * weights_image, stored=Cells.none(y.start), apart=Turned(y.start),
    )  # fmt: skip
    part = part_of(y, size, channels, geometry["y"]) if rest and planes.lines == lines else y
    step(b, record, images * items.bands * items.blocks, reads, [part], wide_bytes // 4)
    if rest:
        moved = {key: planes.lines * line for key, (_, line, _) in geometry.items()}
        after = Lines(images, lines // planes.lines, rest)
        contraction(
            b, layer, Operand(x.buffer, x.at + moved["x"]),
            part_of(y, after, channels, geometry["y"], moved["y"]),
            residual and replace(residual, offset=residual.offset + moved["r"]), after, geometry, terms,
            channels, halo_reads, groups, group_depth, pack, clipped.after(planes.lines), bias,
            planes._replace(lines=1), recipe, how, tiling.width, dots, across, deep,
        )  # fmt: skip


def _strips(machine: Machine, lines: int, line_bytes: int, weight_bytes: int) -> int:
    """Into how many strips a plane of so many lines is cut, so that those of the planes that a filter reads
    fit L2, beside the weights, and are near when the next plane's are computed; 1 if they do not fit, or
    whole planes do. ``line_bytes``: what all these planes have of a line.
    """
    room = machine.l2 - weight_bytes
    if lines * line_bytes <= room or line_bytes > room:
        return 1
    return next(n for n in range(2, lines + 1) if lines % n == 0 and lines // n * line_bytes <= room)


def part_of(y: View, size: Lines, channels: int, strides: tuple[int, int, int], at: int = 0) -> View:
    """The pixels ``size`` of the output, from element ``at``; for planes, from the first to the last one."""
    image, line, pixel = strides
    shape = (size.images, channels, size.lines, size.pixels)
    return View(y.buffer, y.offset + at, shape, (image, 1, line, pixel))


def _as_packed(
    machine: Machine, best: LineTiling, pixels: int, channels: int, depth: int, width: int, weight: int
) -> LineTiling:
    """The tiling with panels that are there already, of ``width`` registers, if it takes no longer than
    fetching the weights, of ``weight`` bytes each, from beyond L2; else ``best``. ``depth``: of all groups
    together.
    """
    same = line_tiling(machine, pixels, channels, width)
    fetched = weight * machine.lanes * best.registers
    hidden = fetched * depth > machine.l2 and same.cycles <= fetched / machine.l3_bytes_per_cycle
    return same if hidden else best
