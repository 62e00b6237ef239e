"""Lowerings of convolutions: dense and grouped ones as a contraction; the others are in `depthwise`."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from bslite import ops
from bslite.kernels.contracts.cpu.gemm import Columns, PlaneRows, Windows
from bslite.kernels.contracts.cpu.tiles import Added, Reads
from bslite.kernels.contracts.record import Operand
from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import Halo, View
from bslite.plan.core.windows import Axis, Window, made_by, shapes_of_params, volume, windows_of
from bslite.plan.cpu.contraction import Clipped, Geometry, Lines, Planes, contraction, cut_lines, merge_lines
from bslite.plan.cpu.conv_planes import conv_planes
from bslite.plan.cpu.halos import BANDED, halo_of, is_column, layer_halo
from bslite.plan.cpu.on_tiles.pixels import Near, Pixels, Places, in_lines
from bslite.plan.cpu.on_tiles.prologue import take_scaled
from bslite.plan.cpu.on_tiles.split import Sum, in_one_part, on_tiles, split_conv, stored
from bslite.plan.cpu.on_tiles.split_weights import computed
from bslite.plan.cpu.ops.conv_input import by_rows, goes_across, image_of, read_for
from bslite.plan.cpu.ops.depthwise import depthwise
from bslite.plan.cpu.packing import (
    bias_of,
    how_of,
    packing,
    packing_across,
    taps_apart,
    weights_of,
    with_weight,
)
from bslite.plan.cpu.reduction import (
    LONGEST,
    LONGEST_OF_CELLS,
    in_planes,
    leaves_out_columns,
    reduction,
    reduction_across,
)
from bslite.plan.cpu.rounded import rounded_residual
from bslite.plan.cpu.step import CpuBuilder
from bslite.plan.shared.conv import Filters, filters_of, residual_of


@CPU.register("conv1d", "conv2d", "conv3d", "conv1d_given", "conv2d_given", "conv3d_given")
def lower_conv(b: CpuBuilder, layer: Layer) -> None:
    """Lower a convolution, dense, grouped or depthwise, with residual and activation in its store."""
    window, halo, clipped = window_of(b, layer)
    filters = with_weight(b, layer, filters_of(b, layer))
    if b.inner(layer.name) != 1:
        rank = len(b.shapes[layer.name])
        x = b.read(layer.node.inputs[0], rank - 1, exact=True)
        conv_planes(b, layer, x, b.write(layer.name), residual_of(b, layer, exact=True), window, filters)
        return
    found = by_rows(b, layer, filters, window, halo)
    x, filters, window = found or (*read_for(b, layer, filters, halo, window, clipped), window)
    y, residual = b.write(layer.name), residual_of(b, layer)
    if is_column(layer, b.crop):
        window, clipped = window._replace(rows=window.cols, cols=window.rows), False
        x, y, residual = _turned(x), _turned(y), residual and _turned(residual)
        filters = filters._replace(weight=filters.weight and _turned(filters.weight))
    convolve(b, layer, x, y, residual, window, filters, clipped)


def window_of(b: CpuBuilder, layer: Layer) -> tuple[Window, Halo, bool]:
    """The windows of a convolution, the zeros beside its input, and whether parts of filters lie outside."""
    node = layer.node
    params = shapes_of_params(b.spec, node, b.shapes)
    (window,) = windows_of(node, params, b.shapes, layer.name)
    halo = layer_halo(layer, b.spec, b.crop)
    clipped = window.by_planes or bool(window.rows.before or window.rows.after)
    if node.declaration.plain in BANDED:
        maps = ops.get(node.declaration.plain).rows(params, node.attrs)
        assert maps is not None
        start, (above, _, below, _), halo = halo_of(layer, maps, b.crop)
        if len(b.shapes[layer.name]) == 3:
            return window._replace(cols=window.cols._replace(start=start)), halo, False
        window = window._replace(rows=window.rows._replace(start=start))
        clipped = bool(above or below)
    return window, halo, clipped


def _whole(b: CpuBuilder, layer: Layer, cols: Axis) -> Axis:
    """The windows along the whole of a signal, of which the layer may see a band."""
    if layer.name not in b.crop.rows or len(b.shapes[layer.name]) != 3:
        return cols
    have, made = (b.crop.whole[name][2] for name in (layer.node.inputs[0], layer.name))
    return cols._replace(start=-layer.node.attrs["padding"][0], have=have, made=made)


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
    across = append is contraction and goes_across(b.machine, filters, window.taps)
    near, planes = (rows.dilation * xl, cols.dilation * xc), (depth.taps, depth.dilation * xp)
    usual = append is contraction and not (across or filters.dots or window.empty)
    # A column is taken as a line, of a band of which other rows are beside it than of the whole.
    column = is_column(layer, b.crop)
    beside = usual and not column and leaves_out_columns(_whole(b, layer, cols), filters.group_depth)
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
    assert filters.reads is Reads.FLOAT32  # who reads cells has asked whether the layer is on tiles
    size = Lines(n, d * p, q)
    if rows.taps == 1 and (by_planes or not clipped):
        d, size, geometry = _recut(
            b, window, (n, d, p, q), filters, geometry, between, clipped, len(y.shape) == 3 or p == 1
        )
    weights = weights_of(window, filters)
    recipe = filters.recipe + ("rounded_panels" if filters.dots else "panels")
    given = packing(b, weights) if weights else None
    if across:
        recipe = filters.recipe + "across"
        given = packing_across(b, taps_apart(weights, window)) if weights else None
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
    if filters.reads is Reads.IN_PLACE:
        clipped = False
    # A band that does not reach a padded edge must have the bits of one that does.
    if window.taps == 1 and (clipped or any(layer.node.attrs.get("padding", ()))):
        return False
    deep, rows, cols = window
    n, channels, d, p, q = volume(y).shape
    of, image = Sum(window, filters.group_depth, filters.groups), image_of(b, layer, window)
    matrices, key = weights_of(window, filters), layer.node.params.get("weight", "")
    if not on_tiles(b, of, channels, image, None if matrices else key):
        return False
    added = Added.FLOAT32
    if residual is not None and in_one_part(b.machine):
        residual, added = rounded_residual(b, layer, residual)
    scaled = None
    if window.taps == filters.groups == 1 and filters.reads is Reads.FLOAT32:
        scaled = take_scaled(b, layer, x)
    if scaled is not None:
        x, origin = scaled.x, scaled.x.start
    xi, _, xp, xl, xc = volume(x).strides
    size = Pixels(n, d, p, q)
    places = [Places(x, origin, xi, deep.stride * xp, rows.stride * xl, cols.stride * xc)]
    for view in (y, residual):
        if view is not None:
            at, _, plane, line, col = volume(view).strides
            places.append(Places(view, view.start, at, plane, line, col))
    if window.taps == 1:
        size, places = in_lines(b.machine.threads, size, places, scaled is not None and scaled.by_image)
    if matrices:
        weights = computed(b, layer, matrices)
    else:
        weights = stored(b, key, filters.groups, filters.recipe, **how_of(window, filters))
    # Zeros beside a line; beside a column that is taken as a line, a band has other rows.
    beside = cols.stride == 1 and not is_column(layer, b.crop)
    return split_conv(
        b, layer, size, of, places[0], Near(xp, xl, xc), places[1], places[2] if residual else None, channels,
        clipped, weights, image, lambda: bias_of(b, layer, filters.groups), filters.reads, added,
        min(cols.before, cols.after) if beside else 0, scaled,
    )  # fmt: skip


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
    used = {key: g for key, g in geometry.items() if g != (0, 0, 0) or between[key]}
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
