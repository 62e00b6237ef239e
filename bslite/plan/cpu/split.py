"""Convolutions and products whose operands are split into parts of bfloat16, where a unit for tiles is
faster.

The sum runs over blocks of 32 channels of each tap, in parts of at most 1,024 terms: a pure function of the
filter's size, as all sums are, so bits do not depend on how a layer is cut.
"""

import functools
from typing import NamedTuple

from bslite.kernels.contracts.cpu.tiles import (
    COLS,
    HEAD,
    LINE,
    PARTS,
    ROWS,
    TERMS,
    TILE,
    SplitConv,
    TileSweep,
)
from bslite.kernels.contracts.record import Operand
from bslite.machine import Machine
from bslite.passes import Layer
from bslite.plan.core.views import View, with_halo
from bslite.plan.core.windows import Axis
from bslite.plan.cpu.epilogue import epilogue
from bslite.plan.cpu.flags import inexact_flag
from bslite.plan.cpu.reduction import LONGEST
from bslite.plan.cpu.stacks import weights_stay_in_l3
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import choose_items, line_tiling

SPLIT = 0.7  # cycles to split a number
STORED = 1.0  # cycles of a register of results behind its sums
HIDDEN = 0.7  # of the lesser of arithmetic and reading of weights, the part that the other one hides
ALL = 1 << 40  # rows of an image whose windows are all inside


class Pixels(NamedTuple):
    """Outputs as ``lines`` of each of ``images``; the last line lacks ``short`` pixels."""

    images: int
    lines: int
    pixels: int
    short: int = 0

    @property
    def count(self) -> int:
        """The outputs of all images."""
        return self.images * (self.lines * self.pixels - self.short)


class Moves(NamedTuple):
    """Elements from image to image, line to line, and pixel to pixel."""

    image: int
    line: int
    col: int


def in_lines(images: int, lines: int, pixels: int, moves: list[Moves]) -> tuple[Pixels, list[Moves]]:
    """Outputs that each read one pixel: where they are evenly spaced, lines of as many as a tile takes."""
    if lines > 1 and all(m.line == pixels * m.col for m in moves):
        pixels, lines = lines * pixels, 1
    if lines == 1 and images > 1 and all(m.image == pixels * m.col for m in moves):
        pixels, images = images * pixels, 1
    if lines > 1:
        return Pixels(images, lines, pixels), moves
    length = 2 * ROWS
    size = Pixels(images, -(-pixels // length), length, -pixels % length)
    return size, [m._replace(line=length * m.col) for m in moves]


class Filter(NamedTuple):
    """The taps of a filter along rows and columns of an image of ``depth`` channels."""

    rows: Axis
    cols: Axis
    depth: int

    @property
    def blocks(self) -> int:
        """Blocks of 32 channels of a pixel."""
        return -(-self.depth // TERMS)

    @property
    def steps(self) -> int:
        """Blocks of terms of the whole sum."""
        return self.rows.taps * self.cols.taps * self.blocks

    @property
    def terms(self) -> int:
        """Terms of the sum, without padding."""
        return self.rows.taps * self.cols.taps * self.depth


def products_of(b: CpuBuilder, layer: Layer) -> int:
    """The products of parts that this layer may be computed by; 0 if by float32 multiply-adds only."""
    key = layer.node.params.get("weight")
    if not b.machine.tile_cycles or key is None or key in b.tuning.inexact:
        return 0
    return int(b.tuning.precision.products)


def split_conv(
    b: CpuBuilder, layer: Layer, x: View, origin: Operand, x_moves: Moves, row: int, y: View, y_moves: Moves,
    residual: View | None, r_moves: Moves, size: Pixels, of: Filter, channels: int, clipped: bool,
) -> bool:  # fmt: skip
    """Append the step of one convolution and return True, if it takes less time than with multiply-adds.

    ``x_moves``: between the windows of neighbouring outputs; ``row``: elements between rows of the image.
    """
    products = products_of(b, layer)
    if not products or not is_faster(
        b.machine, size, of, channels, products, weights_stay_in_l3(b.spec, b.machine)
    ):
        return False
    machine, parts = b.machine, PARTS[products]
    one = of.rows.taps == of.cols.taps == 1
    row_step, col_step = (1, 1) if one else (of.rows.stride, of.cols.stride)
    row, col = (x_moves.line, x_moves.col) if one else (row, x_moves.col // col_step)
    filter_rows, filter_cols = (1 + (a.taps - 1) * a.dilation for a in (of.rows, of.cols))
    cols = (size.pixels - 1) * col_step + filter_cols
    pitch = -(-cols // col_step)
    pixel = of.blocks * parts * LINE
    pixel += LINE * (pixel % (4 * LINE) == 0)  # rows of a tile must not all meet in a few sets of L1
    panels = -(-channels // (2 * COLS))
    read = (size.lines - 1) * row_step + filter_rows
    items = choose_items(
        machine, size.images, size.lines, panels, cycles_of(machine, size, of, channels, products),
        read * cols * pixel, panels * of.steps * parts * 2 * TILE, 4 * size.lines * size.pixels * channels,
    )  # fmt: skip
    band_rows = (items.band_lines - 1) * row_step + filter_rows
    plane = -(-band_rows // row_step) * pitch * pixel
    places = [
        (i % row_step * col_step + j % col_step) * plane + (i // row_step * pitch + j // col_step) * pixel
        for i in range(0, filter_rows, of.rows.dilation)
        for j in range(0, filter_cols, of.cols.dilation)
    ]
    offsets = [place + block * parts * LINE for place in places for block in range(of.blocks)]
    own = layer.node.params.get("bias")
    keys = [own] if own else []
    bias = b.const("bias_panels", *keys, channels=channels, lanes=machine.lanes, groups=1)
    weights = b.const("split_panels", layer.node.params["weight"], parts=parts)
    record = SplitConv(
        origin, y.start, residual.start if residual is not None else y.start, Operand(weights, 0),
        Operand(bias, 0), Operand(b.const("offsets", values=offsets), 0), inexact_flag(b, layer),
        has_residual=int(residual is not None),
        x_image=4 * x_moves.image, x_line=4 * x_moves.line, x_row=4 * row, x_col=4 * col,
        y_image=4 * y_moves.image, y_line=4 * y_moves.line, y_col=4 * y_moves.col,
        residual_image=4 * r_moves.image, residual_line=4 * r_moves.line, residual_col=4 * r_moves.col,
        images=size.images, lines=size.lines, pixels=size.pixels, short=size.short, **items._asdict(),
        panels=panels, depth=of.depth, blocks_of_terms=of.blocks, parts=parts, steps=of.steps,
        chunk=LONGEST // TERMS, start=of.rows.start if clipped else 0, row_step=row_step,
        rows=of.rows.have if clipped else ALL, filter_rows=filter_rows, cols=cols, row_phases=row_step,
        col_phases=col_step, pitch=pitch, pixel=pixel, plane=plane, channels=channels,
        sweep=TileSweep(products), end=epilogue(layer.activation),
    )  # fmt: skip
    reads = [with_halo(x)] + ([residual] if residual is not None else [])
    # A tile may begin at the last output and take 32.
    scratch = HEAD + row_step * col_step * plane + 2 * ROWS * pixel
    step(b, record, size.images * items.bands * items.blocks, reads, [y], scratch=scratch // 4)
    return True


@functools.lru_cache(4096)
def cycles_of(machine: Machine, size: Pixels, of: Filter, channels: int, products: int) -> float:
    """Cycles of one core: products of tiles, numbers split, results stored."""
    rows = -(-size.count // ROWS)
    multiplied = rows * -(-channels // COLS) * of.steps * products * machine.tile_cycles
    once = 1 if of.rows.taps == of.cols.taps == 1 else of.rows.stride * of.cols.stride
    stored = size.count * -(-channels // machine.lanes) * STORED
    return multiplied + SPLIT * size.count * once * of.blocks * TERMS + stored


@functools.lru_cache(4096)
def is_faster(
    machine: Machine, size: Pixels, of: Filter, channels: int, products: int, weights_in_l3: bool
) -> bool:
    """Whether products of tiles take less time than float32 multiply-adds, weights read from beyond L2
    included: parts of a number take more bytes than the number.
    """
    speed = machine.l3_bytes_per_cycle if weights_in_l3 else machine.memory_bytes_per_cycle
    lines = size.images * size.lines - size.short / size.pixels
    added = line_tiling(machine, size.pixels, channels).cycles * lines * of.terms
    multiplied = cycles_of(machine, size, of, channels, products)
    padded = of.steps * TERMS * -(-channels // (2 * COLS)) * 2 * COLS

    def time(compute: float, weights: float) -> float:
        both = compute / machine.threads, weights / (machine.threads * speed)
        return max(both) + (1.0 - HIDDEN) * min(both)

    return time(multiplied, 2 * PARTS[products] * padded) < time(added, 4 * of.terms * channels)
