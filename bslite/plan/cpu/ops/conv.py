"""Lowerings of convolutions: dense and grouped ones as a contraction; the others are in `depthwise`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from bslite import ops
from bslite.kernels.contracts.cpu.gemm import Columns, PlaneRows, Windows
from bslite.kernels.contracts.cpu.tiles import PARTS, TERMS
from bslite.kernels.contracts.record import Operand
from bslite.machine import Machine
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import View
from bslite.plan.core.windows import Axis, Halo, Window, made_by, shapes_of_params, volume, windows_of
from bslite.plan.cpu.contraction import Clipped, Geometry, Lines, Planes, contraction, cut_lines, merge_lines
from bslite.plan.cpu.halos import halo_of, is_column, layer_halo
from bslite.plan.cpu.ops.depthwise import depthwise, in_registers
from bslite.plan.cpu.packing import bias_of, how_of, packing, packing_across, weights_of, with_weight
from bslite.plan.cpu.reduction import LONGEST, LONGEST_OF_CELLS, in_planes, reduction, reduction_across
from bslite.plan.cpu.rounded import cells, on_dots, rounded, rounded_by_makers
from bslite.plan.cpu.split import Near, Pixels, Places, Sum, in_lines, on_tiles, recurs, split_conv, stored
from bslite.plan.cpu.split_weights import computed
from bslite.plan.cpu.step import CpuBuilder
from bslite.plan.cpu.tiling import across_rows
from bslite.plan.shared.conv import Filters, filters_of, residual_of


@CPU.register("conv1d", "conv2d", "conv3d", "conv1d_given", "conv2d_given", "conv3d_given")
def lower_conv(b: CpuBuilder, layer: Layer) -> None:
    """Lower a convolution, dense, grouped or depthwise, with residual and activation in its store."""
    window, halo, clipped = window_of(b, layer)
    filters = with_weight(b, layer, filters_of(b, layer))
    found = _by_rows(b, layer, filters, window, halo)
    x, filters, window = found or (*read_for(b, layer, filters, halo, window, clipped), window)
    y, residual = b.write(layer.name), residual_of(b, layer)
    if is_column(layer, b.crop):
        window, clipped = window._replace(rows=window.cols, cols=window.rows), False
        x, y, residual = _turned(x), _turned(y), residual and _turned(residual)
        filters = filters._replace(weight=filters.weight and _turned(filters.weight))
    convolve(b, layer, x, y, residual, window, filters, clipped)


def read_for(
    b: CpuBuilder,
    layer: Layer,
    filters: Filters,
    halo: Halo,
    window: Window | None = None,
    clipped: bool = False,
) -> tuple[View, Filters]:
    """The input of a convolution with ``halo`` zeros around it, and its filters: both as cells of bfloat16
    where that is faster. ``window``: of one whose cells tiles may read, too.
    """
    name = layer.node.inputs[0]
    key = layer.node.params["weight"] if filters.weight is None else None
    attrs, taps = layer.node.attrs, shapes_of_params(b.spec, layer.node, b.shapes)["weight"][2:]
    reads = math.prod(taps) / math.prod(attrs["stride"])
    if on_dots(b, key, filters.group_depth, filters.group_channels, filters.groups, reads):
        depth = cells(filters.group_depth)
        x = rounded(b, layer, b.read(name, exact=True), 1, halo)
        return x, filters._replace(group_depth=depth, dots=True)
    filters = filters._replace(in_registers=in_registers(b.machine, layer, filters, math.prod(taps)))
    made = None if window is None else _direct(b, layer, filters, window, clipped)
    if made is not None:
        return made, filters._replace(direct=True)
    x = b.read(name, halo=halo, exact=not filters.in_registers)  # the GEMM tile loads A by the element
    return x, filters


def _direct(b: CpuBuilder, layer: Layer, filters: Filters, window: Window, clipped: bool) -> View | None:
    """The input as cells with all zeros around it, where its makers store it so, and tiles can read it where
    it lies: one part of whole blocks of terms, by windows that are neighbours.
    """
    _, rows, cols = window
    whole = filters.group_depth % TERMS == 0 and PARTS[b.machine.tile_products] == 1
    if not b.machine.tile_cycles or not whole or filters.weight is not None or filters.in_registers:
        return None
    if window.empty or window.by_planes or rows.stride * cols.stride > 1 or is_column(layer, b.crop):
        return None
    if window.taps == 1 and (clipped or any(layer.node.attrs.get("padding", ()))):
        return None  # see `_on_tiles`
    of, key = Sum(window, filters.group_depth, filters.groups), layer.node.params["weight"]
    if _across(b.machine, filters, window.taps) or not on_tiles(
        b, of, filters.groups * filters.group_channels, _image(b, layer, window), key
    ):
        return None
    reach_rows, reach_cols = of.reach
    below = rows.start + rows.made - 1 + reach_rows - rows.have
    right = cols.start + cols.made - 1 + reach_cols - cols.have
    halo = max(0, -rows.start), max(0, -cols.start), max(0, below), max(0, right)
    x = b.values[layer.node.inputs[0]]
    return rounded_by_makers(b, layer, x, 1, halo) if x.strides[1] == 1 else None


def _by_rows(
    b: CpuBuilder, layer: Layer, filters: Filters, window: Window, halo: Halo
) -> tuple[View, Filters, Window] | None:
    """Input, filters and windows of an image with few channels, a whole row of a window as one pixel: where
    products of bfloat16 are faster so.
    """
    together = layer.node.declaration.plain == "conv2d" and filters.groups == window.cols.dilation == 1
    if not together or filters.weight is not None or window.empty:
        return None
    return _rows_on_tiles(b, layer, filters, window, halo) or _rows_of_cells(b, layer, filters, window, halo)


def _rows_on_tiles(
    b: CpuBuilder, layer: Layer, filters: Filters, window: Window, halo: Halo
) -> tuple[View, Filters, Window] | None:
    """`_by_rows` for tiles of bfloat16, where fewer blocks of terms have zeros in them. Not of one row: of
    windows of one pixel tiles would not compute a band at the edge of an image.
    """
    cols, depth = window.cols, filters.group_depth
    if depth >= FEW or cols.taps == 1 or window.rows.taps == 1:
        return None
    one = window._replace(cols=_each(cols))
    of, key = Sum(one, cols.taps * depth), layer.node.params["weight"]
    if of.steps >= window.taps or not on_tiles(b, of, filters.group_channels, _image(b, layer, one), key):
        return None
    x = _close(b, layer, halo, depth, 1)
    n, _, height, _ = x.shape
    image, _, line, _ = x.strides
    shape, strides = (n, of.depth, height, cols.made), (image, 1, line, cols.stride * depth)
    lines = View(x.buffer, x.offset + cols.start * depth, shape, strides)
    return lines, filters._replace(group_depth=of.depth, recipe="row_"), one


def _rows_of_cells(
    b: CpuBuilder, layer: Layer, filters: Filters, window: Window, halo: Halo
) -> tuple[View, Filters, Window] | None:
    """`_by_rows` for dot products, of an odd number of channels: where windows begin at even numbers of a
    line.

    A cell of two pixels is no matter: the number beside the last one of a row has a weight of zero.
    """
    _, rows, cols = window
    depth, channels = filters.group_depth, filters.group_channels
    if depth % 2 == 0 or cols.stride % 2:
        return None
    group, reads = cells(cols.taps * depth), window.taps / (rows.stride * cols.stride)
    if not on_dots(b, layer.node.params["weight"], 2 * group, channels, reads=reads):
        return None
    x = _close(b, layer, halo, depth, 2, cols.start)
    n, _, height, width = x.shape
    _, left, _, right = x.halo
    image, _, line, col = x.strides
    whole = (left + width + right) * depth
    lines = View(x.buffer, x.offset - left * col, (n, whole, height, 1), (image, 1, line, whole))
    made = rounded(b, layer, lines, 1)
    image, _, line, _ = made.strides
    at = made.offset + (left + cols.start) * depth // 2
    x = View(made.buffer, at, (n, group, height, cols.made), (image, 1, line, cols.stride * depth // 2))
    return x, filters._replace(group_depth=group, recipe="row_", dots=True), window._replace(cols=_each(cols))


def _close(b: CpuBuilder, layer: Layer, halo: Halo, depth: int, unit: int, start: int = 0) -> View:
    """The input with ``halo`` zeros around it and nothing between pixels; the pixel ``start`` is a multiple
    of ``unit`` pixels away from the beginning of a line.
    """
    x = b.read(layer.node.inputs[0], halo=halo, exact=True)
    if x.strides[3] != depth or (x.halo[1] + start) % unit:
        x, given = b.fresh(x.shape, 1, halo), x
        b.copy(given, x)
    return x


def _each(axis: Axis) -> Axis:
    """Windows of one element, as many."""
    return Axis(1, 1, 1, 0, axis.made, axis.made)


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
        depthwise(b, layer, x, y, origin, window, inside, filters)
        return
    across = append is contraction and _across(b.machine, filters, window.taps)
    near, planes = (rows.dilation * xl, cols.dilation * xc), (depth.taps, depth.dilation * xp)
    usual = append is contraction and not (across or filters.dots or window.empty)
    # A column is taken as a line, of a band of which other rows are beside it than of the whole.
    beside = usual and not is_column(layer, b.crop) and leaves_out_columns(cols, filters.group_depth)
    if across:
        terms = reduction_across(rows.taps, cols.taps, filters.group_depth, *near, *planes)
    else:
        merged = filters.groups == 1 and cols.dilation == 1 and xc == filters.group_depth  # whole rows
        longest = LONGEST_OF_CELLS if filters.dots else LONGEST
        terms = reduction(rows.taps, cols.taps, filters.group_depth, *near, merged, *planes, beside, longest)
    n, channels, d, p, q = volume(y).shape
    yi, _, yp, yl, yc = volume(y).strides
    geometry = {"x": (xi, rows.stride * xl, cols.stride * xc), "y": (yi, yl, yc), "r": (0, 0, 0)}
    between = {"x": depth.stride * xp, "y": yp, "r": 0}
    if residual is not None:
        ri, _, between["r"], rl, rc = volume(residual).strides
        geometry["r"] = (ri, rl, rc)
    if (
        append is contraction
        and not across
        and _on_tiles(b, layer, x, origin, y, residual, window, filters, clipped)
    ):
        return
    size = Lines(n, d * p, q)
    if rows.taps == 1 and (by_planes or not clipped):
        d, size, geometry = _recut(
            b, window, (n, d, p, q), filters, geometry, between, clipped, len(y.shape) == 3 or p == 1
        )
    weights = weights_of(window, filters)
    recipe = filters.recipe + ("rounded_panels" if filters.dots else "panels")
    given = packing(b, weights) if weights else None
    if across:
        recipe, given = "across", packing_across(b, weights, window) if weights else None
    plane_taps, entries = len(terms.offsets) // depth.taps, len(terms.offsets) // (depth.taps * rows.taps)
    at_rows, at_columns = PlaneRows(), Columns()
    if (
        by_planes
        and clipped
        and not across
        and in_planes(rows.taps, cols.taps, filters.group_depth, depth.taps)
    ):
        at_rows = PlaneRows(rows.start, rows.stride, rows.dilation, rows.have, rows.taps, entries)
    if beside:
        at_columns = Columns(
            cols.start, cols.stride, cols.dilation, cols.have, cols.taps, entries // cols.taps,
            size.pixels if p == 1 else 0,
        )  # fmt: skip
    row_taps = (plane_taps if by_planes else entries) * clipped
    append(
        b, layer, origin, y, residual, size, geometry, terms,
        channels=channels, groups=filters.groups,
        group_depth=filters.group_depth if filters.groups > 1 else 0, halo_reads=x,
        clipped=Clipped(inside, row_taps, depth.taps if by_planes else rows.taps, at_rows, at_columns),
        planes=Planes(size.lines // d, **between) if d > 1 else None,
        deep=depth.taps if d > 1 and rows.taps == 1 else 1, recipe=recipe,
        how=how_of(window, filters), dots=filters.dots, **({"across": True} if across else {}),
        **({"pack": given, "bias": bias_of(b, layer, filters.groups)} if weights else {}),
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
    places = [Places(x, origin, xi, deep.stride * xp, rows.stride * xl, cols.stride * xc)]
    for view in (y, residual):
        if view is not None:
            image, _, plane, line, col = volume(view).strides
            places.append(Places(view, view.start, image, plane, line, col))
    if filters.direct:
        clipped = False
    if window.taps == 1:
        # A band that does not reach a padded edge must have the bits of one that does.
        if clipped or any(layer.node.attrs.get("padding", ())):
            return False
        size, places = in_lines(b.machine.threads, size, places)
    matrices = weights_of(window, filters)
    if matrices:
        weights = computed(b, layer, matrices)
    else:
        key = layer.node.params["weight"]
        weights = stored(
            b, key, filters.groups, filters.group_channels, filters.recipe, **how_of(window, filters)
        )
    of = Sum(window, filters.group_depth, filters.groups)
    return split_conv(
        b, layer, size, of, places[0], Near(xp, xl, xc), places[1], places[2] if residual else None, channels,
        clipped, weights, _image(b, layer, window), lambda: bias_of(b, layer, filters.groups), filters.direct,
    )  # fmt: skip


def _image(b: CpuBuilder, layer: Layer, window: Window) -> tuple[int, int] | None:
    """The outputs of a whole image, and of its lines, by which it is decided whether tiles compute a layer.

    None for windows of one pixel, because a step of a sequence must have the bits that it has in the whole:
    unless it is the only one of an image, as behind an average, of a model whose steps are never run alone.
    """
    made = b.crop.whole[layer.name][2:]
    if window.taps == 1 and (len(made) == 1 or math.prod(made) > 1 or recurs(b.spec)):
        return None
    line = made[-1] if made[-1] > 1 else math.prod(made)  # a column is a line
    deep, rows, cols = window
    return max(1, math.prod(made) // (deep.step * rows.step * cols.step)), max(1, line // cols.step)


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


def _across(machine: Machine, filters: Filters, taps: int) -> bool:
    """Whether lanes run along the sums of a convolution of so few outputs that these would leave most of the
    lanes of a panel empty. The size of the filters alone says so.

    A register of terms then takes a multiply-add and some loads for each output; adding up its lanes takes
    some operations for each result.
    """
    outputs, depth = filters.group_channels, filters.group_depth
    if filters.groups > 1 or filters.dots or filters.recipe:
        return False
    blocks = taps * -(-depth // machine.lanes)
    worth = 0 < blocks <= LONGEST and outputs * (1.3 * blocks + ADD_UP) <= 0.7 * taps * depth
    return worth and across_rows(machine, outputs) > 0


def leaves_out_columns(cols: Axis, depth: int) -> bool:
    """Whether taps are summed one by one, each for the pixels that have a column of the image there: where
    wide windows reach far beyond its sides. Parts of a sum are stored and loaded once more for that.
    """
    inside = 0
    for tap in range(cols.taps):
        first = cols.start + tap * cols.dilation
        low, high = -(-max(0, -first) // cols.stride), -(-max(0, cols.have - first) // cols.stride)
        inside += max(0, min(cols.made, high) - min(cols.made, low))
    return cols.taps > 1 < cols.dilation and 1 - inside / (cols.taps * cols.made) > SPARED + PART / depth


FEW = TERMS  # channels of an image, of which a whole row of a window may be one pixel
SPARED, PART = 0.03, 8.0  # share of the taps that must be spared, and terms that storing a part costs
ADD_UP = 10.0  # multiply-adds in whose time the lanes of a register are added up
