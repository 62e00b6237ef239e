"""How a convolution reads its input: as float32, as cells of bfloat16, or a row of a window as one pixel."""

import math

from bslite.kernels.contracts.cpu.rows import PICTURE
from bslite.kernels.contracts.cpu.tiles import TERMS, Reads
from bslite.machine import Machine
from bslite.passes import Layer
from bslite.plan.core.views import NO_HALO, Halo, View
from bslite.plan.core.windows import Axis, Window, shapes_of_params, volume
from bslite.plan.cpu.halos import is_column
from bslite.plan.cpu.on_tiles.picture import rows_of_windows
from bslite.plan.cpu.on_tiles.split import Sum, in_one_part, on_tiles, recurs
from bslite.plan.cpu.ops.depthwise import in_registers
from bslite.plan.cpu.reduction import sums_across
from bslite.plan.cpu.rounded import cells, on_dots, rounded, rounded_by_makers, rounded_for_some
from bslite.plan.cpu.step import CpuBuilder
from bslite.plan.shared.conv import Filters
from bslite.spec import ModelSpec, Node

FEW = TERMS  # channels of an image, of which a whole row of a window may be one pixel


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
        x = rounded(b, layer, b.read(name, 1, exact=True), halo)
        return x, filters._replace(group_depth=depth, dots=True)
    filters = filters._replace(in_registers=in_registers(b.machine, layer, filters, math.prod(taps)))
    if window is not None and _takes_cells(b, layer, filters, window, clipped):
        found = _in_place(b, layer, window, Sum(window, filters.group_depth, filters.groups))
        if found is not None:
            return found, filters._replace(reads=Reads.IN_PLACE)
        found = rounded_for_some(b, layer, name, halo)
        if found is not None:
            return found, filters._replace(reads=Reads.CELLS)
    x = b.read(name, 1, halo, exact=not filters.in_registers)  # the GEMM tile loads A by the element
    return x, filters


def _takes_cells(b: CpuBuilder, layer: Layer, filters: Filters, window: Window, clipped: bool) -> bool:
    """Whether a layer is on tiles of one part, and its input may be cells: of whole blocks of terms."""
    if not in_one_part(b.machine, filters.group_depth) or filters.weight is not None or filters.in_registers:
        return False
    if window.empty or window.by_planes or is_column(layer, b.crop):
        return False
    if window.taps == 1 and (clipped or any(layer.node.attrs.get("padding", ()))):
        return False  # see `conv._on_tiles`
    if goes_across(b.machine, filters, window.taps) or b.values[layer.node.inputs[0]].strides[1] != 1:
        return False
    of, key = Sum(window, filters.group_depth, filters.groups), layer.node.params["weight"]
    outputs = filters.groups * filters.group_channels
    return on_tiles(b, of, outputs, image_of(b, layer, window), key)


def _in_place(b: CpuBuilder, layer: Layer, window: Window, of: Sum) -> View | None:
    """The input as cells with all zeros around it, where its makers store it so, and tiles can read it where
    it lies: by windows that are neighbours.
    """
    _, rows, cols = window
    if rows.stride * cols.stride > 1:
        return None
    halo = _zeros(rows, cols)
    x = b.values[layer.node.inputs[0]]
    return None if halo == NO_HALO and not _in_order(x) else rounded_by_makers(b, layer, x, halo)


def _zeros(rows: Axis, cols: Axis) -> Halo:
    """Those around an image that windows reach."""
    return rows.before, cols.before, rows.after, cols.after


def _in_order(x: View) -> bool:
    """Whether the lines of an image lie one after the other, whole pixels apart: not turned, no broadcast."""
    *_, height, width = volume(x).shape
    *_, line, col = volume(x).strides
    return height == 1 or (col > 0 and line % col == 0 and line >= width * col)


def by_rows(
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
    """`by_rows` for tiles of bfloat16, where fewer blocks of terms have zeros in them. Not of one row: of
    windows of one pixel tiles would not compute a band at the edge of an image.
    """
    cols, depth = window.cols, filters.group_depth
    if depth >= FEW or cols.taps == 1 or window.rows.taps == 1:
        return None
    one = window._replace(cols=_each(cols))
    picture = in_one_part(b.machine) and depth <= PICTURE
    of, key = Sum(one, cols.taps * (PICTURE if picture else depth)), layer.node.params["weight"]
    if of.steps >= window.taps or not on_tiles(b, of, filters.group_channels, image_of(b, layer, one), key):
        return None
    filters = filters._replace(group_depth=of.depth, recipe="picture_" if picture else "row_")
    if picture:
        lines = rows_of_windows(b, layer, b.values[layer.node.inputs[0]], window, _zeros(window.rows, cols))
        return lines, filters._replace(reads=Reads.IN_PLACE), one
    x = _close(b, layer, halo, depth, 1)
    n, _, height, _ = x.shape
    image, _, line, _ = x.strides
    shape, strides = (n, of.depth, height, cols.made), (image, 1, line, cols.stride * depth)
    lines = View(x.buffer, x.offset + cols.start * depth, shape, strides)
    return lines, filters, one


def _rows_of_cells(
    b: CpuBuilder, layer: Layer, filters: Filters, window: Window, halo: Halo
) -> tuple[View, Filters, Window] | None:
    """`by_rows` for dot products, of an odd number of channels: where windows begin at even numbers of a
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
    made = rounded(b, layer, lines)
    image, _, line, _ = made.strides
    at = made.offset + (left + cols.start) * depth // 2
    x = View(made.buffer, at, (n, group, height, cols.made), (image, 1, line, cols.stride * depth // 2))
    return x, filters._replace(group_depth=group, recipe="row_", dots=True), window._replace(cols=_each(cols))


def _close(b: CpuBuilder, layer: Layer, halo: Halo, depth: int, unit: int, start: int = 0) -> View:
    """The input with ``halo`` zeros around it and nothing between pixels; the pixel ``start`` is a multiple
    of ``unit`` pixels away from the beginning of a line.
    """
    x = b.read(layer.node.inputs[0], 1, halo, exact=True)
    if x.strides[3] != depth or (x.halo[1] + start) % unit:
        x, given = b.fresh(x.shape, 1, halo), x
        b.copy(given, x)
    return x


def _each(axis: Axis) -> Axis:
    """Windows of one element, as many."""
    return Axis(1, 1, 1, 0, axis.made, axis.made)


def image_of(b: CpuBuilder, layer: Layer, window: Window) -> tuple[int, int] | None:
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


def goes_across(machine: Machine, filters: Filters, taps: int) -> bool:
    """Whether lanes run along the sums of a convolution, or of a phase of a transposed one."""
    if filters.groups > 1 or filters.dots or filters.recipe not in ("", "transposed_"):
        return False
    if filters.recipe and filters.weight is not None:
        return False
    return sums_across(machine, filters.group_channels, filters.group_depth, taps)


def runs_across(machine: Machine, spec: ModelSpec, node: Node) -> bool:
    """The same of a convolution with constant weights. Of planes its sums would have other bits."""
    outputs, inputs, *kernel = spec.param_shapes(node)["weight"]
    return node.attrs["groups"] == 1 and sums_across(machine, outputs, inputs, math.prod(kernel))
