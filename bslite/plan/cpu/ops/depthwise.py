"""Lowering of convolutions whose registers hold channels of a pixel: depthwise, small groups of channels."""

import math

from bslite.kernels.contracts.cpu.cells import Cells
from bslite.kernels.contracts.cpu.gemm import Depthwise, Windows
from bslite.kernels.contracts.cpu.sweep import DepthwiseSweep, pieces
from bslite.kernels.contracts.record import Operand
from bslite.machine import Machine
from bslite.passes import Layer
from bslite.plan.core.views import View, with_halo
from bslite.plan.core.windows import NONE, Window, volume
from bslite.plan.cpu.banding import ITEMS
from bslite.plan.cpu.contraction import Lines, part_of
from bslite.plan.cpu.epilogue import epilogue
from bslite.plan.cpu.line_sums import line_sums_of
from bslite.plan.cpu.packing import bias_of, how_of, pack, weights_of
from bslite.plan.cpu.reduction import LONGEST
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import TALLEST, choose_items, cut_line
from bslite.plan.shared.conv import Filters

#: Filters up to this width have a microkernel of their own, for these horizontal strides; dilation 1.
WIDEST, STRIDES = 64, (1, 2)
NEAR = 0.1  # share of L2 for what a piece of a signal's line reads and writes
SHORTEST = 28  # pixels of such a piece
PER_OUTPUT = 6.0  # cycles of a register of outputs besides its multiply-adds, mostly moving through L2


def in_registers(machine: Machine, layer: Layer, filters: Filters, taps: int) -> bool:
    """Whether a register holds channels of a pixel of whole groups: of one channel each, or of so few that a
    panel of a group's filters would leave at least half of its lanes empty.

    The lanes of a pixel are picked once for all filter columns that need it. With one tap, they are picked
    for each product, so groups must be half as large.
    """
    inputs, outputs = filters.group_depth, filters.group_channels
    if layer.residual is not None or filters.groups == 1:
        return False
    if filters.depthwise:
        return True
    few = inputs <= outputs <= machine.lanes // (2 if taps > 1 else 4) and machine.lanes >= 8
    return not filters.recipe and few and machine.lanes % outputs == 0 and inputs * taps <= LONGEST


def channel_run(machine: Machine, registers: int, lines: int, pixels: int, pixel: int) -> int:
    """The number of channel registers to take through all lines of an image before the next ones.

    ``lines`` lines of that many registers, ``pixels`` long, stay in L1, because the next line of output reads
    most of them again. Pixels are ``pixel`` bytes apart; where that is a multiple of 2, 4, ... registers, so
    few use only every second, fourth, ... set of L1, and fewer registers make no more room. Where none stay,
    the number is all of them: data from further away should lie together.
    """
    register = 4 * machine.lanes
    fits = int(0.7 * machine.l1) // (lines * pixels * register)
    if fits < min(registers, max(1, math.gcd(pixel, 4096) // register)):
        return registers
    return -(-registers // -(-registers // fits))


def depthwise(
    b: CpuBuilder,
    layer: Layer,
    x: View,
    y: View,
    origin: Operand,
    window: Window,
    inside: Windows,
    filters: Filters,
) -> None:
    """Append a "depthwise" step: one filter per channel, or small groups. ``inside``: the places of the
    windows. A signal's line is cut into shorter ones, and what remains after them is a step of its own.
    """
    weights = _weights(b, layer, window, filters, volume(y).shape[1])
    sums = line_sums_of(b, layer, y)
    (n, channels, *between, pixels), (image, *_, pixel) = y.shape, y.strides
    one_line = math.prod(between) == window.depth.taps == window.rows.taps == 1 and sums is None
    within = all(0 <= axis.start < axis.have for axis in (window.depth, window.rows)) and not window.empty
    length = piece(b.machine, channels, pixels) if one_line and within else pixels
    if length == pixels:
        _depthwise_step(b, layer, x, y, x, origin, window, inside, filters, weights, sums)
        return
    step, lines = window.cols.stride * x.strides[-1], pixels // length
    for at, size in ((0, Lines(n, lines, length)), (lines * length, Lines(n, 1, pixels % length))):
        if size.pixels:
            cut = window._replace(rows=NONE._replace(have=size.lines, made=size.lines))
            read = View(
                x.buffer, x.offset, (n, channels, size.lines, size.pixels * window.cols.stride),
                (x.strides[0], 1, size.pixels * step, x.strides[-1]),
            )  # fmt: skip
            part = part_of(y, size, channels, (image, size.pixels * pixel, pixel), at * pixel)
            start = Operand(origin.buffer, origin.at + at * step)
            _depthwise_step(
                b, layer, read, part, x, start, cut, Windows(0, 1, 1, size.lines), filters, weights, None
            )


def piece(machine: Machine, channels: int, pixels: int) -> int:
    """The length of the pieces that a line of so many pixels is cut into: what a thread reads and writes for
    one stays near while it takes one register of channels after the other, and all have some to share.
    """
    near, shared = int(NEAR * machine.l2) // (8 * channels), pixels // (ITEMS * machine.threads)
    most = min(pixels, max(SHORTEST, min(near, shared)))
    return next((n for n in range(most, most // 2, -1) if pixels % n == 0), most)


def _depthwise_step(
    b: CpuBuilder,
    layer: Layer,
    x: View,
    y: View,
    reads: View,
    origin: Operand,
    window: Window,
    inside: Windows,
    filters: Filters,
    weights: tuple[Operand, Operand, list[View]],
    sums: View | None,
) -> None:
    """Append one step from x to y, which may be pieces of what it ``reads`` and of the layer's value."""
    machine = b.machine
    deep = window.depth.taps > 1 or window.by_planes
    filter_rows, cols = window.rows.taps, window.cols.taps
    filter_lines = window.depth.taps * filter_rows
    n, channels, planes, lines, pixels = volume(y).shape
    registers = -(-channels // machine.lanes)
    xi, _, xp, xl, xc = volume(x).strides
    yi, _, yp, yl, yc = volume(y).strides
    sw, dw = window.cols.stride, window.cols.dilation
    own = b.tuning.by_filter and 1 < cols <= WIDEST and sw in STRIDES and dw == 1
    tile = (cols, sw) if own else (0, 0)
    # accumulators, the weights of a piece of a filter row (or one at a time), and as many pixels as the
    # stride; in groups the numbers of the lanes to pick, and those picked, too
    grouped = not filters.depthwise
    held = (pieces(cols)[0][1] if own else 1) + max(tile[1], 1) + 2 * grouped
    most = max(1, min(TALLEST, machine.registers - held))
    cut = cut_line(pixels, most)
    steady = max(pixels, machine.fma_latency * (cut.tiles1 + cut.tiles2))
    # loading a pixel for every multiply-add halves the rate
    products = filter_lines * cols * filters.group_depth
    per_output = products / machine.fma_ports * (1 if tile[0] else 2) + PER_OUTPUT
    cycles = registers * planes * lines * n * steady * per_output
    run = channel_run(machine, registers, filter_lines, x.shape[-1], 4 * abs(xc))
    items = choose_items(
        machine,
        n,
        planes * lines,
        -(-registers // run),
        cycles,
        4 * abs(xl) * math.prod(volume(x).shape[2:4]),
        4 * products * registers * machine.lanes,
        4 * planes * lines * pixels * channels,
    )
    matrix, biases, read = weights
    si, _, sl, _ = sums.strides if sums else (0, 0, 0, 0)
    record = Depthwise(
        origin, y.start, matrix, biases, sums.start if sums else y.start, has_sums=int(sums is not None),
        sums_image=4 * si, sums_line=4 * sl,
        x_image=4 * xi, x_line=4 * window.rows.stride * xl, x_col=4 * sw * xc,
        x_row=4 * window.rows.dilation * xl, x_tap=4 * dw * xc, y_image=4 * yi, y_line=4 * yl, y_col=4 * yc,
        lines=planes * lines, band_lines=items.band_lines, bands=items.bands, blocks=items.blocks,
        block_registers=items.block_panels * run, run=run, channels=channels,
        group_inputs=filters.group_depth, group_outputs=filters.group_channels,
        filter_rows=filter_rows, filter_cols=cols, windows=inside, plane_lines=lines,
        x_plane=4 * window.depth.stride * xp, y_plane=4 * yp, filter_planes=window.depth.taps,
        x_deep=4 * window.depth.dilation * xp, cut=cut,
        sweep=DepthwiseSweep(*tile, most, deep, grouped=grouped), end=epilogue(layer.activation),
        stored=Cells.none(y.start),
    )  # fmt: skip
    writes = [y, sums] if sums else [y]
    step(b, record, n * items.bands * items.blocks, [with_halo(reads), *read], writes)


def _weights(
    b: CpuBuilder, layer: Layer, window: Window, filters: Filters, channels: int
) -> tuple[Operand, Operand, list[View]]:
    """Filters as `Depthwise` has them, and the bias; and those of the two that are values."""
    node, lanes = layer.node, b.machine.lanes
    matrices = weights_of(window, filters)
    if matrices:  # all outputs are columns of one matrix, a tap and input of a filter is a tap
        cols, inputs = window.cols.taps, filters.group_depth
        rows = [matrices.taps[i : i + cols] for i in range(0, len(matrices.taps), cols)]
        taps = [i * matrices.row + tap for row in rows for i in range(inputs) for tap in row]
        column = matrices.runs[2] // filters.group_channels
        one = matrices._replace(rows=1, cols=channels, col=column, taps=taps, sizes=(1, 1, 1))
        weights = [pack(b, one, 1, 1, -(-channels // lanes))]
        at = weights[0].start
        bias = bias_of(b, layer)
        if bias is not None:
            return at, bias.start, [*weights, bias]
    else:
        weights = []
        recipe, how = filters.recipe + "depthwise", how_of(window, filters)
        if not filters.depthwise:
            recipe, how = "small_groups", {"cols": window.cols.taps}
        at = Operand(b.const(recipe, node.params["weight"], lanes=lanes, **how), 0)
    keys = [node.params["bias"]] if "bias" in node.params else []
    return at, Operand(b.const("bias_panels", *keys, channels=channels, lanes=lanes, groups=1), 0), weights
