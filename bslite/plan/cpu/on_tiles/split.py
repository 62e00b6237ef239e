"""Convolutions and products whose operands are split into parts of bfloat16, where that is faster.

The sum runs over blocks of 32 channels of each tap, in parts of at most 1,024 terms: a pure function of the
filter's size, as all sums are, so bits do not depend on how a layer is cut.
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from bslite.kernels.contracts.cpu.cells import Cells
from bslite.kernels.contracts.cpu.sweep import Narrow
from bslite.kernels.contracts.cpu.tiles import (
    BLOCK,
    COLS,
    HEAD,
    LINE,
    PARTS,
    ROW,
    ROWS,
    STREAMS,
    TERMS,
    TILE,
    Added,
    Prologue,
    Reads,
    SplitConv,
    TileSweep,
)
from bslite.kernels.contracts.record import Operand
from bslite.machine import Machine
from bslite.ops.recurrent import CELLS
from bslite.passes import Layer
from bslite.plan.core.views import View, with_halo
from bslite.plan.core.windows import NONE, Window
from bslite.plan.cpu.epilogue import epilogue
from bslite.plan.cpu.on_tiles.items import Band, leaving, tile_items
from bslite.plan.cpu.on_tiles.pixels import Near, Pixels, Places
from bslite.plan.cpu.on_tiles.prologue import Scaled
from bslite.plan.cpu.outside import inexact_flag
from bslite.plan.cpu.reduction import LONGEST
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import line_tiling
from bslite.spec import ModelSpec

#: Of a product of tiles, with the tiles that it loads from L2, as a Xeon takes them (16 alone). Layers are
#: chosen by it, whatever was measured.
CYCLES = 22.0
SPLIT = {6: 0.6, 3: 0.45, 1: 0.2}  # products -> cycles to split a number into the parts that they take
STORED = 5.0  # cycles of a register of results behind its sums
READ = 0.3  # cycles of a weight of all parts, which has more bytes than a float32
WORTH = 0.9  # of the cycles of multiply-adds: what a layer on tiles must take less than
ALL = 1 << 40  # rows, or planes, of an image whose windows are all inside
PANEL = 2 * COLS  # columns of a panel
CHUNK_STEPS = LONGEST // TERMS  # blocks of terms that are summed at a time
FEW = 3 * ROWS  # outputs whose parts stay in L2, however long rows are
LARGE = 32 << 20  # bytes of weights that caches do not keep from one call to the next
PIXEL = Window(NONE, NONE, NONE)  # of a product of rows


class Sum(NamedTuple):
    """What an output sums: a window of ``depth`` channels, in each of ``groups``."""

    window: Window
    depth: int
    groups: int = 1

    @property
    def blocks(self) -> int:
        """Blocks of 32 channels of a pixel of a group."""
        return -(-self.depth // TERMS)

    @property
    def steps(self) -> int:
        """Blocks of terms of the whole sum."""
        return self.window.taps * self.blocks

    @property
    def reach(self) -> tuple[int, int]:
        """Rows and columns from the first to the last of a window."""
        rows, cols = self.window.rows, self.window.cols
        return 1 + (rows.taps - 1) * rows.dilation, 1 + (cols.taps - 1) * cols.dilation

    @property
    def phases(self) -> tuple[int, int]:
        """The strides that pixels are sorted by; a window of one pixel sees no others."""
        rows, cols = self.window.rows, self.window.cols
        return (1, 1) if rows.taps == cols.taps == 1 else (rows.stride, cols.stride)


class Parts(NamedTuple):
    """Where the parts of an item's pixels lie, in bytes, as `SplitConv` has it; ``end``: behind them, in
    scratch memory.
    """

    pitch: int
    pixel: int
    plane: int
    slab: int
    offsets: list[int]
    end: int
    run: int = 0


class Passes(NamedTuple):
    """How weights pass an item, as `SplitConv` has it."""

    part: int
    ahead: int
    first_lines: int
    quarters: int
    far: int
    sums: int
    panel_sums: int
    chunk_sums: int


#: Where packed weights begin, elements from image to image, and views to read.
Packed = tuple[Operand, int, list[View]]


class Weights(NamedTuple):
    """What packs weights, given the parts of x and theirs; the parameter that they are, if it is one."""

    packed: Callable[[int, int], Packed]
    key: str | None = None


def stored(b: CpuBuilder, key: str, groups: int, recipe: str = "", **how: Any) -> Weights:
    """The weights that are the parameter ``key``; ``recipe``: what the name of its recipe begins with."""

    def packed(parts: int, b_parts: int) -> Packed:
        split = {"parts": parts, "b_parts": b_parts, "groups": groups}
        return Operand(b.const(recipe + "split_panels", key, **split, **how), 0), 0, []

    return Weights(packed, key)


def split_conv(
    b: CpuBuilder, layer: Layer, size: Pixels, of: Sum, x: Places, near: Near, y: Places,
    residual: Places | None, channels: int, clipped: bool, weights: Weights, image: tuple[int, int] | None,
    bias: Callable[[], View | None] = lambda: None, reads: Reads = Reads.FLOAT32,
    added: Added = Added.FLOAT32, shared: int = 0, scaled: Scaled | None = None,
) -> bool:  # fmt: skip
    """Append the step of one convolution and return True, if it takes less time than with multiply-adds.

    ``x`` has the places of windows. ``clipped``: some leave the image; their rows, or the planes of a volume,
    that lie outside are zeros. ``image``: the outputs of a whole image, and of its lines, by which it is
    decided, because an image in a batch, or a band of it, must have the bits that it has alone; None where
    nothing of the sizes may decide. ``bias``: gives one that is a value, in registers. ``reads``: what x is;
    ``added``: how the residual is. ``shared``: columns of zeros that end a line and may begin the next.
    ``scaled``: what computes the input from x.
    """
    machine, mine, in_place = b.machine, channels // of.groups, reads is Reads.IN_PLACE
    if not on_tiles(b, of, channels, image, weights.key):
        return False
    sweep = sweep_of(b, weights.key)
    parts, b_parts, (row_step, col_step) = PARTS[sweep.products], sweep.b_parts, of.phases
    deep, rows, cols = of.window
    if rows.taps == cols.taps == 1:  # lines and pixels that are not read do not count
        near = near._replace(row=x.line, col=x.col)
    reach_rows, reach_cols = of.reach
    wide = (size.pixels - 1) * col_step + reach_cols
    panels = -(-mine // PANEL)
    group_bytes = panels * of.steps * b_parts * 2 * TILE
    by_chunks = not in_place and of.window.taps == of.groups == 1 < FEW < size.made and of.steps > CHUNK_STEPS
    near_blocks = CHUNK_STEPS if by_chunks else of.blocks  # whose parts are there at a time
    all_rows = size.images * size.planes * size.lines * row_step
    there, pitch = None, -(-wide // col_step) - shared
    if in_place:
        there = _where_they_are(b, of, size, x, near)
        pitch = -(-size.pixels // ROWS) * ROWS if there.run else there.pitch
    band = Band(
        size.images * size.planes, size.lines, size.pixels, pitch, panels * of.groups, residual is not None,
        row_step, max(0, reach_rows - row_step),
        4 * of.steps * len(sweep.pairs) * machine.tile_cycles, PANEL / machine.lanes * STORED,
        0.0 if in_place else split_of(machine, size, of) / all_rows,
        4 * deep.taps * wide * of.groups * of.depth,
        deep.taps * pitch * col_step * of.groups * near_blocks * parts * LINE,
        size.pixels * ROW if by_chunks else 0,
        group_bytes * of.groups, 4 * size.lines * size.pixels * channels,
    )  # fmt: skip
    items = tile_items(machine, band)
    lie = there or _in_scratch(of, near_blocks, parts, items.band_lines, wide, shared)
    in_line = -(-size.pixels // (2 * ROWS))
    blocks = -(-((items.band_lines - 1) * lie.pitch + size.pixels) // (2 * ROWS))
    blocks = items.band_lines * in_line if lie.run else blocks
    read = wide * items.band_lines * row_step  # of a plane: rows and planes that lie outside fetch nothing
    goes_on = sweep.products == 1
    chunk = of.steps if goes_on and not by_chunks else CHUNK_STEPS
    passes, scratch = _passes(
        b, of, b_parts, blocks, read, leaving(machine, band, items) > 0.0, lie.end, chunk
    )
    if by_chunks:
        panel_bytes, sums_bytes = of.steps * b_parts * 2 * TILE, BLOCK * blocks
        passes = passes._replace(
            ahead=panel_bytes, panel_sums=sums_bytes, chunk_sums=lie.end + sums_bytes * items.block_panels
        )
        scratch = passes.chunk_sums + sums_bytes
    at_weights, weights_image, more = weights.packed(parts, b_parts)
    table, biases = b.const("offsets", values=lie.offsets), bias()
    if biases is not None:
        at_bias, more = biases.start, [*more, biases]
    else:
        keys = [layer.node.params["bias"]] if "bias" in layer.node.params else []
        how = {"channels": channels, "lanes": machine.lanes, "groups": of.groups}
        at_bias = Operand(b.const("bias_panels", *keys, **how), 0)
    rest, by_planes = residual or y, of.window.by_planes
    record = SplitConv(
        x.start, y.start, rest.start, at_weights, at_bias, Operand(table, 0), reads=reads,
        added=added if residual else Added.NOTHING,
        x_image=4 * x.image, x_plane=4 * x.plane, x_line=4 * x.line, x_deep=4 * deep.dilation * near.plane,
        x_row=4 * near.row, x_col=4 * near.col,
        y_image=4 * y.image, y_plane=4 * y.plane, y_line=4 * y.line, y_col=4 * y.col,
        residual_image=4 * rest.image, residual_plane=4 * rest.plane, residual_line=4 * rest.line,
        residual_col=4 * rest.col, images=size.images * size.planes, planes=size.planes, lines=size.lines,
        pixels=size.pixels, short=size.short, **items._asdict(), panels=panels * of.groups,
        group_panels=panels, group_channels=mine, group_weight_bytes=group_bytes,
        weights_image=4 * weights_image, groups=of.groups, depth=of.depth, blocks_of_terms=of.blocks,
        parts=parts, b_parts=b_parts, steps=of.steps, chunk=chunk, by_chunks=int(by_chunks),
        goes_on=int(goes_on), **passes._asdict(),
        start=rows.start if clipped and not by_planes else 0, row_step=row_step,
        rows=rows.have if clipped and not by_planes else ALL, filter_rows=reach_rows, cols=wide,
        deep_start=deep.start if by_planes else 0, deep_step=deep.stride, deep_taps=deep.taps,
        deep_dilation=deep.dilation, deep_have=deep.have if by_planes else ALL, slab=lie.slab,
        row_phases=row_step, col_phases=col_step, pitch=lie.pitch, run=lie.run, pixel=lie.pixel,
        plane=lie.plane,
        sweep=sweep, prologue=scaled.record if scaled else Prologue.nothing(x.start),
        end=epilogue(layer.activation), stored=Cells(y.start, inexact_flag(b, layer)),
    )  # fmt: skip
    more += [view for view in (scaled or ())[1:3] if view is not None]
    reads = [with_halo(x.view), *([residual.view] if residual else []), *more]
    made = step(
        b, record, size.images * size.planes * items.bands * items.blocks, reads, [y.view], scratch // 4
    )
    if scaled is not None:
        made.layers = (*scaled.layers, *made.layers)
    return True


def _in_scratch(of: Sum, blocks: int, parts: int, band_lines: int, wide: int, shared: int) -> Parts:
    """Parts of so many ``blocks`` of terms that are made of the pixels of so many lines, each of which reads
    ``wide`` pixels, ``shared`` of them with the next.
    """
    (deep, rows, cols), (row_step, col_step), (reach_rows, reach_cols) = of.window, of.phases, of.reach
    pitch = -(-wide // col_step) - shared
    pixel = of.groups * blocks * parts * LINE
    pixel += LINE * (pixel % (4 * LINE) == 0)  # rows of a tile must not all meet in a few sets of L1
    plane = -(-((band_lines - 1) * row_step + reach_rows) // row_step) * pitch * pixel
    slab = row_step * col_step * plane
    places = [
        t * slab
        + (i % row_step * col_step + j % col_step) * plane
        + (i // row_step * pitch + j // col_step) * pixel
        for t, i, j in product(
            range(deep.taps), range(0, reach_rows, rows.dilation), range(0, reach_cols, cols.dilation)
        )
    ]
    offsets = [place + block * parts * LINE for block in range(blocks) for place in places]
    # A tile may begin at the last output and take 32.
    return Parts(pitch, pixel, plane, slab, offsets, HEAD + deep.taps * slab + (2 * ROWS + shared) * pixel)


def _where_they_are(b: CpuBuilder, of: Sum, size: Pixels, x: Places, near: Near) -> Parts:
    """Cells in memory, whose pixels are evenly spaced. A tile may begin with the last output of a line, and
    reads 16.
    """
    rows, cols = of.window.rows, of.window.cols
    pitch, rest = divmod(x.line, x.col) if size.lines > 1 else (size.pixels, 0)
    apart = rest > 0 or -(-pitch // ROWS) > -(-size.pixels // ROWS) + 1
    windows = product(range(rows.taps), range(cols.taps))
    places = [i * rows.dilation * near.row + j * cols.dilation * near.col for i, j in windows]
    last = (size.images - 1) * x.image + (size.planes - 1) * x.plane + (size.lines - 1) * x.line
    last += (size.pixels - size.short - 1 + ROWS - 1) * x.col
    end = x.start.at + last + max(places) + of.groups * of.blocks * LINE // 4
    buffer = b.buffers[x.view.buffer]
    b.buffers[buffer.name] = replace(buffer, size=max(buffer.size, end))
    offsets = [4 * place + block * LINE for block in range(of.blocks) for place in places]
    return Parts(size.pixels if apart else pitch, 4 * x.col, 0, 0, offsets, HEAD, 4 * x.line if apart else 0)


def _passes(
    b: CpuBuilder, of: Sum, b_parts: int, blocks: int, read: int, far: bool, at: int, chunk: int
) -> tuple[Passes, int]:
    """How the weights pass the ``blocks`` of 32 outputs of an item, which reads ``read`` pixels or more; its
    sums may lie in scratch memory from ``at`` on. And where that ends.

    Weights are fetched ahead, by all blocks of outputs alike, the first ones while pixels are split. Those
    that L2 keeps are fetched for a thread's first band only, others (``far``) for each.
    """
    how, step_bytes, part = b.tuning.fetching, b_parts * 2 * TILE, min(chunk, of.steps)
    if b.machine.tile_products == 1 and blocks > 4:  # fewer do not pay for sums that go on
        part = min(part, _near(how.near // step_bytes, of.window.taps))
    chunk_sums = end = at + BLOCK * (blocks if part < of.steps else 1)
    end += BLOCK * blocks * (of.steps > chunk)
    quarters = -(-4 // blocks) if how.ahead else 0
    first = -(-part * step_bytes // (LINE * STREAMS * read)) if how.ahead else 0
    return Passes(part, part * step_bytes, first, quarters, int(far), at, 0, chunk_sums), end


def _near(steps: int, taps: int) -> int:
    """Blocks of terms whose weights stay in L1, about ``steps``: of all taps of some blocks of channels,
    whose pixels then do so, too.
    """
    return taps * max(1, steps // taps) if taps <= 2 * steps else steps


@functools.lru_cache(4096)
def multiplied(machine: Machine, size: Pixels, of: Sum, channels: int, sweep: TileSweep) -> float:
    """Cycles of one core for products of tiles and results stored. ``channels``: of a group."""
    rows = -(-size.made // ROWS)
    tiles = rows * -(-channels // COLS) * of.steps * len(sweep.pairs) * machine.tile_cycles
    return of.groups * (tiles + size.made * -(-channels // machine.lanes) * STORED)


def split_of(machine: Machine, size: Pixels, of: Sum) -> float:
    """Cycles of one core for numbers split."""
    read = size.made * of.phases[0] * of.phases[1] * of.window.depth.taps
    return SPLIT[machine.tile_products] * of.groups * read * of.blocks * TERMS


def on_tiles(
    b: CpuBuilder, of: Sum, channels: int, image: tuple[int, int] | None, key: str | None = None
) -> bool:
    """Whether products of tiles compute a layer, whose weights may be the parameter ``key``.

    It depends on the layer and the processor alone, on nothing that was measured and on no number of threads.
    """
    if not b.machine.tile_cycles or key in b.tuning.inexact:
        return False
    return is_faster(usual(b.machine), image, of, channels // of.groups, sweep_of(b, key))


def sweep_of(b: CpuBuilder, key: str | None) -> TileSweep:
    """The products that a layer takes whose weights are the parameter ``key``, or None."""
    products = b.machine.tile_products
    narrow = b.tuning.narrow.get(key, Narrow.NO) if key else Narrow.NO
    return TileSweep(products, min(PARTS[products], narrow.parts))


def in_one_part(machine: Machine, terms: int = 0) -> bool:
    """Whether layers on tiles take one part of numbers, of whole blocks of ``terms``: as cells have them."""
    return machine.tile_cycles > 0 and PARTS[machine.tile_products] == 1 and terms % TERMS == 0


def recurs(spec: ModelSpec) -> bool:
    """Whether a model has recurrent layers: its steps may be run one at a time, and must have the bits that
    they have in the whole sequence.
    """
    return any(n.op in CELLS for n in spec.nodes)


def usual(machine: Machine) -> Machine:
    """A machine with such registers and such a unit, and nothing of it measured."""
    return Machine(
        lanes=machine.lanes,
        registers=machine.registers,
        tile_cycles=CYCLES,
        tile_products=machine.tile_products,
    )


@functools.lru_cache(4096)
def is_faster(
    machine: Machine, image: tuple[int, int] | None, of: Sum, channels: int, sweep: TileSweep
) -> bool:
    """Whether products of tiles take fewer cycles than float32 multiply-adds, for an image of so many
    outputs, and lines of so many; None: for one without end. Each image reads the weights.
    """
    outputs, line = image or (1 << 20, 1 << 10)
    terms = of.window.taps * of.depth
    added = of.groups * line_tiling(machine, line, channels).cycles * outputs / line * terms
    size = Pixels(1, 1, 1, outputs)
    split = split_of(machine, size, of)
    if 2 * sweep.b_parts > 4:
        split += READ * of.groups * terms * channels
    return multiplied(machine, size, of, channels, sweep) + split < WORTH * added
