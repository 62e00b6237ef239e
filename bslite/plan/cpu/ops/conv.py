"""Lowerings of convolutions: dense and grouped as a contraction, depthwise and in small groups on a kernel
of their own.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from bslite import ops
from bslite.kernels.contracts.cpu.cells import Cells
from bslite.kernels.contracts.cpu.gemm import Depthwise, Windows
from bslite.kernels.contracts.cpu.sweep import DepthwiseSweep
from bslite.kernels.contracts.record import Operand
from bslite.machine import Machine
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View, with_halo
from bslite.plan.core.windows import Axis, Halo, Window, made_by, shapes_of_params, volume, windows_of
from bslite.plan.cpu.contraction import Clipped, Geometry, Lines, Planes, contraction, cut_lines, merge_lines
from bslite.plan.cpu.epilogue import epilogue
from bslite.plan.cpu.halos import halo_of, is_column, layer_halo
from bslite.plan.cpu.line_sums import line_sums_of
from bslite.plan.cpu.packing import bias_of, pack, packing, weights_of, with_weight
from bslite.plan.cpu.reduction import reduction
from bslite.plan.cpu.rounded import cells, on_dots, rounded
from bslite.plan.cpu.split import Near, Pixels, Places, Sum, in_lines, split_conv, stored
from bslite.plan.cpu.split_weights import computed
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import TALLEST, choose_items, cut_line
from bslite.plan.shared.conv import Filters, filters_of, residual_of


@CPU.register("conv1d", "conv2d", "conv3d", "conv1d_given", "conv2d_given", "conv3d_given")
def lower_conv(b: CpuBuilder, layer: Layer) -> None:
    """Lower a convolution, dense, grouped or depthwise, with residual and activation in its store."""
    window, halo, clipped = window_of(b, layer)
    filters = with_weight(b, layer, filters_of(b, layer))
    found = _by_rows(b, layer, filters, window, halo)
    x, filters, window = found or (*read_for(b, layer, filters, halo), window)
    y, residual = b.write(layer.name), residual_of(b, layer)
    if is_column(layer, b.crop):
        window, clipped = window._replace(rows=window.cols, cols=window.rows), False
        x, y, residual = _turned(x), _turned(y), residual and _turned(residual)
        filters = filters._replace(weight=filters.weight and _turned(filters.weight))
    convolve(b, layer, x, y, residual, window, filters, clipped)


def read_for(b: CpuBuilder, layer: Layer, filters: Filters, halo: Halo) -> tuple[View, Filters]:
    """The input of a convolution with ``halo`` zeros around it, and its filters: both as cells of bfloat16
    where that is faster.
    """
    name = layer.node.inputs[0]
    key = layer.node.params["weight"] if filters.weight is None else None
    attrs, taps = layer.node.attrs, shapes_of_params(b.spec, layer.node, b.shapes)["weight"][2:]
    reads = math.prod(taps) / math.prod(attrs["stride"])
    if on_dots(b, key, filters.group_depth, filters.group_channels, filters.groups, reads):
        depth = cells(filters.group_depth)
        x = rounded(b, layer, b.read(name, exact=True), 1, halo)
        return x, filters._replace(group_depth=depth, dots=True)
    filters = filters._replace(in_registers=_in_registers(b.machine, layer, filters, math.prod(taps)))
    x = b.read(name, halo=halo, exact=not filters.in_registers)  # the GEMM tile loads A by the element
    return x, filters


def _by_rows(
    b: CpuBuilder, layer: Layer, filters: Filters, window: Window, halo: Halo
) -> tuple[View, Filters, Window] | None:
    """Input, filters and windows of an image with an odd number of channels, a whole row of a window as the
    cells of one pixel: where windows begin at even numbers of a line, and dot products are faster.

    A cell of two pixels is no matter: the number beside the last one of a row has a weight of zero.
    """
    _, rows, cols = window
    depth, channels = filters.group_depth, filters.group_channels
    together = layer.node.declaration.plain == "conv2d" and filters.groups == cols.dilation == 1
    if not together or filters.weight is not None or depth % 2 == 0 or cols.stride % 2 or window.empty:
        return None
    group, reads = cells(cols.taps * depth), window.taps / (rows.stride * cols.stride)
    if not on_dots(b, layer.node.params["weight"], 2 * group, channels, reads=reads):
        return None
    x = b.read(layer.node.inputs[0], halo=halo, exact=True)
    if x.strides[3] != depth or (x.halo[1] + cols.start) % 2:
        x, given = b.fresh(x.shape, 1, halo), x
        b.copy(given, x)
    n, _, height, width = x.shape
    _, left, _, right = x.halo
    image, _, line, col = x.strides
    whole = (left + width + right) * depth
    lines = View(x.buffer, x.offset - left * col, (n, whole, height, 1), (image, 1, line, whole))
    made = rounded(b, layer, lines, 1)
    image, _, line, _ = made.strides
    at = made.offset + (left + cols.start) * depth // 2
    x = View(made.buffer, at, (n, group, height, cols.made), (image, 1, line, cols.stride * depth // 2))
    window = window._replace(cols=Axis(1, 1, 1, 0, cols.made, cols.made))
    return x, filters._replace(group_depth=group, recipe="row_", dots=True), window


def window_of(b: CpuBuilder, layer: Layer) -> tuple[Window, Halo, bool]:
    """The windows of a convolution, the zeros beside its input, and whether parts of filters lie outside."""
    node = layer.node
    params = shapes_of_params(b.spec, node, b.shapes)
    (window,) = windows_of(node, params, b.shapes, layer.name)
    halo = layer_halo(layer, b.spec, b.crop)
    clipped = window.by_planes or bool(window.rows.before or window.rows.after)
    if node.declaration.plain in ("conv2d", "int_conv2d"):
        maps = ops.get(node.declaration.plain).rows(params, node.attrs)
        assert maps is not None
        start, (above, _, below, _), halo = halo_of(layer, maps, b.crop)
        window = window._replace(rows=window.rows._replace(start=start))
        clipped = bool(above or below)
    return window, halo, clipped


def _turned(view: View) -> View:
    """The view with its rows as columns."""
    top, left, bottom, right = view.halo
    return replace(view.permute((0, 1, 3, 2)), halo=(left, top, right, bottom))


def convolve(
    b: CpuBuilder,
    layer: Layer,
    x: View,
    y: View,
    residual: View | None,
    window: Window,
    filters: Filters,
    clipped: bool,
    append: Callable[..., None] = contraction,
) -> None:
    """Append the step of one convolution; ``clipped``: parts of filters lie outside the input. ``append``:
    what appends it, if it is not depthwise.
    """
    depth, rows, cols = window
    by_planes = window.by_planes
    along = depth if by_planes else rows
    inside = Windows(along.start, along.stride, along.dilation, along.have, int(by_planes))
    if window.empty:  # the whole filter is left out
        window = window._replace(**{name: a._replace(start=0) for name, a in window._asdict().items()})
        depth, rows, cols = window
        inside, clipped = Windows(), True
    y = made_by(y, window)
    if residual is not None:
        residual = made_by(residual, window)
    xi, _, xp, xl, xc = volume(x).strides
    origin = Operand(x.buffer, x.offset + depth.start * xp + cols.start * xc + rows.start * xl)
    if append is contraction and filters.in_registers:
        _depthwise(b, layer, x, y, origin, window, inside, filters)
        return
    merged = filters.groups == 1 and cols.dilation == 1 and xc == filters.group_depth  # rows are contiguous
    terms = reduction(
        rows.taps, cols.taps, filters.group_depth, rows.dilation * xl, cols.dilation * xc, merged, depth.taps,
        depth.dilation * xp,
    )  # fmt: skip
    n, channels, d, p, q = volume(y).shape
    yi, _, yp, yl, yc = volume(y).strides
    geometry = {"x": (xi, rows.stride * xl, cols.stride * xc), "y": (yi, yl, yc), "r": (0, 0, 0)}
    between = {"x": depth.stride * xp, "y": yp, "r": 0}
    if residual is not None:
        ri, _, between["r"], rl, rc = volume(residual).strides
        geometry["r"] = (ri, rl, rc)
    if append is contraction and _on_tiles(b, layer, x, origin, y, residual, window, filters, clipped):
        return
    size = Lines(n, d * p, q)
    if rows.taps == 1 and (by_planes or not clipped):
        d, size, geometry = _recut(
            b, window, (n, d, p, q), filters, geometry, between, clipped, len(y.shape) == 3 or p == 1
        )
    weights = weights_of(window, filters)
    row_taps = len(terms.offsets) // (depth.taps if by_planes else rows.taps) * clipped
    append(
        b, layer, origin, y, residual, size, geometry, terms,
        channels=channels, groups=filters.groups,
        group_depth=filters.group_depth if filters.groups > 1 else 0, halo_reads=x,
        clipped=Clipped(inside, row_taps, depth.taps if by_planes else rows.taps),
        planes=Planes(size.lines // d, **between) if d > 1 else None,
        recipe=filters.recipe + ("rounded_panels" if filters.dots else "panels"), how=_how(window, filters),
        dots=filters.dots,
        **({"pack": packing(b, weights), "bias": bias_of(b, layer, filters.groups)} if weights else {}),
    )  # fmt: skip


def _on_tiles(
    b: CpuBuilder, layer: Layer, x: View, origin: Operand, y: View, residual: View | None, window: Window,
    filters: Filters, clipped: bool,
) -> bool:  # fmt: skip
    """Append the step on tiles of bfloat16, if that is faster; say whether it is."""
    if window.empty or filters.dots:
        return False
    deep, rows, cols = window
    n, channels, d, p, q = volume(y).shape
    xi, _, xp, xl, xc = volume(x).strides
    size = Pixels(n, d, p, q)
    made = b.crop.whole[layer.name][2:]
    line = made[-1] if made[-1] > 1 else math.prod(made)  # a column is a line
    whole = max(1, math.prod(made) // (deep.step * rows.step * cols.step)), max(1, line // cols.step)
    places = [Places(x, origin, xi, deep.stride * xp, rows.stride * xl, cols.stride * xc)]
    for view in (y, residual):
        if view is not None:
            image, _, plane, line, col = volume(view).strides
            places.append(Places(view, view.start, image, plane, line, col))
    if window.taps == 1:
        if clipped:
            return False
        size, places = in_lines(size, places)
    matrices = weights_of(window, filters)
    if matrices:
        weights = computed(b, layer, matrices)
    else:
        key = layer.node.params["weight"]
        weights = stored(
            b, key, filters.groups, filters.group_channels, filters.recipe, **_how(window, filters)
        )
    of = Sum(window, filters.group_depth, filters.groups)
    return split_conv(
        b, layer, size, of, places[0], Near(xp, xl, xc), places[1], places[2] if residual else None, channels,
        clipped, weights, whole if window.taps > 1 else None, lambda: bias_of(b, layer, filters.groups),
    )  # fmt: skip


def _how(window: Window, filters: Filters) -> dict[str, Any]:
    """Arguments of the recipes: for a filter that is split up, the taps of this part of it."""
    if not filters.how:
        return {}
    return {
        **filters.how,
        "first": tuple(a.first_tap for a in window),
        "step": tuple(a.tap_step for a in window),
        "taps": tuple(a.taps for a in window),
    }


def _recut(
    b: CpuBuilder,
    window: Window,
    made: tuple[int, int, int, int],
    filters: Filters,
    geometry: Geometry,
    between: Mapping[str, int],
    clipped: bool,
    one_line: bool,
) -> tuple[int, Lines, Geometry]:
    """Planes and lines where filters are one row high: lines may then be cut anywhere. Evenly spaced pixels
    let the lines of a plane become one, and with filters of one pixel, planes and images too. ``made``:
    images, planes, lines and pixels of the output; ``one_line``: it has one line only.
    """
    n, d, p, q = made
    used = {key: g for key, g in geometry.items() if g != (0, 0, 0)}
    channels = filters.group_channels
    pixel = window.cols.taps == window.depth.taps == 1 and not clipped
    if pixel and d > 1 and all(between[key] == p * line for key, (_, line, _) in used.items()):
        d, p = 1, d * p
    if pixel and d == 1:
        return d, *merge_lines(b, n, p, q, channels, geometry)
    if window.cols.taps == 1 and p > 1 and all(line == q * col for _, line, col in used.values()):
        p, q = 1, p * q
    if p > 1 or not (d > 1 or one_line):
        return d, Lines(n, d * p, q), geometry
    lines, geometry = cut_lines(b, n, q, channels, geometry)
    return d, lines._replace(lines=d * lines.lines), geometry


def _in_registers(machine: Machine, layer: Layer, filters: Filters, taps: int) -> bool:
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
    return not filters.recipe and few and machine.lanes % outputs == 0 and inputs * taps <= MOST_TERMS


MOST_TERMS = 1024  # of a sum that is not taken in parts, where groups have several channels
#: Widths and horizontal strides of filters that have a microkernel of their own; dilation 1.
BY_FILTER_ROWS = {(cols, stride) for cols in (3, 5, 7) for stride in (1, 2)}
PER_OUTPUT = 6.0  # cycles of a register of outputs besides its multiply-adds, mostly moving through L2


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


def _depthwise(
    b: CpuBuilder,
    layer: Layer,
    x: View,
    y: View,
    origin: Operand,
    window: Window,
    inside: Windows,
    filters: Filters,
) -> None:
    """Append one "depthwise" step: one filter per channel, or small groups. ``inside``: the places of the
    windows.
    """
    machine = b.machine
    deep = window.depth.taps > 1 or window.by_planes
    filter_rows, cols = window.rows.taps, window.cols.taps
    filter_lines = window.depth.taps * filter_rows
    n, channels, planes, lines, pixels = volume(y).shape
    registers = -(-channels // machine.lanes)
    xi, _, xp, xl, xc = volume(x).strides
    yi, _, yp, yl, yc = volume(y).strides
    sw, dw = window.cols.stride, window.cols.dilation
    own = b.tuning.by_filter and (cols, sw) in BY_FILTER_ROWS and dw == 1
    tile = (cols, sw) if own else (0, 0)
    # accumulators, the weights of a filter row (or one at a time), and as many pixels as the stride
    grouped = not filters.depthwise
    most = max(1, min(TALLEST, machine.registers - max(tile[0], 1) - max(tile[1], 1) - 2 * grouped))
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
    weights, biases, read = _depthwise_weights(b, layer, window, filters, channels)
    sums = line_sums_of(b, layer, y)
    si, _, sl, _ = sums.strides if sums else (0, 0, 0, 0)
    record = Depthwise(
        origin, y.start, weights, biases, sums.start if sums else y.start, has_sums=int(sums is not None),
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
    step(b, record, n * items.bands * items.blocks, [with_halo(x), *read], writes)


def _depthwise_weights(
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
        recipe, how = filters.recipe + "depthwise", _how(window, filters)
        if not filters.depthwise:
            recipe, how = "small_groups", {"cols": window.cols.taps}
        at = Operand(b.const(recipe, node.params["weight"], lanes=lanes, **how), 0)
    keys = [node.params["bias"]] if "bias" in node.params else []
    return at, Operand(b.const("bias_panels", *keys, channels=channels, lanes=lanes, groups=1), 0), weights
