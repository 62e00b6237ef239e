"""Lowerings of sums of products of integers, over lines of pixels, and of the making of pairs and quads."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from bslite.kernels.contracts.cpu.integer import IntConv, IntSweep, Made, Pairs, Quads
from bslite.kernels.contracts.cpu.rows import RowAxes
from bslite.kernels.contracts.record import Operand
from bslite.ops.integer import cells
from bslite.passes import Layer
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import NO_HALO, View, size_of, with_halo
from bslite.plan.cpu.contraction import INSIDE, Clipped, Geometry, Lines, Planes, merge_lines, part_of
from bslite.plan.cpu.ops.conv import convolve, window_of
from bslite.plan.cpu.ops.move import in_bytes
from bslite.plan.cpu.reduction import Reduction, reduction
from bslite.plan.cpu.sharing import share_rows
from bslite.plan.cpu.step import CpuBuilder, step
from bslite.plan.cpu.tiling import choose_items, line_tiling, max_rows
from bslite.plan.shared.conv import Filters

MADE = {"int32": Made.SUM, "float32": Made.REAL, "pairs": Made.PAIRS, "quads": Made.QUADS}
OUTER = 3  # axes around a row of pairs


@CPU.register("pairs", "quads")
def lower_pairs(b: CpuBuilder, layer: Layer) -> None:
    """Lower the rounding of numbers to pairs or quads."""
    name, *numbers = layer.node.inputs
    axis = layer.node.attrs["axis"] % len(b.shapes[name])
    x = b.read(name, inner=axis, exact=True)
    y, home = b.writable(layer.name, axis)
    if not _pairs(b, layer, x, y, axis, [b.values[n] for n in numbers]):
        x, y = _plain(b, x, axis), b.fresh(y.shape, axis, NO_HALO)
        done = _pairs(b, layer, x, y, axis, [b.values[n] for n in numbers])
        assert done
    if y is not home:
        b.copy(y, home)


def _plain(b: CpuBuilder, x: View, axis: int) -> View:
    """A copy whose axes lie in their order around ``axis``."""
    plain = b.fresh(x.shape, axis, NO_HALO)
    b.copy(x, plain)
    return plain


def _pairs(b: CpuBuilder, layer: Layer, x: View, y: View, axis: int, numbers: list[View]) -> bool:
    """Append the step; return False, without one, where rows lie along too many axes."""
    sizes, (xs, ys) = merged_axes(x.shape, [x.strides, y.strides], by=1, keep_last=axis)
    outer = sizes[:-1]
    if len(outer) > OUTER:
        return False
    rows, channels = size_of(tuple(outer)), x.shape[axis]
    item_rows, items = share_rows(b.machine, rows, rows * (10 + 4.0 * -(-channels // b.machine.lanes)))
    n, (xs, ys) = padded(outer, [xs[:-1], ys[:-1]], OUTER)
    along = RowAxes(in_bytes(xs), in_bytes(ys), n[1], n[2], rows, item_rows)
    groups = layer.node.attrs["groups"]
    record: Pairs | Quads
    if layer.node.op == "quads":
        record = Quads(x.start, y.start, along, groups, channels // groups, float(layer.node.attrs["least"]))
    else:
        scale, zero = [v.start for v in numbers] or [x.start, x.start]
        record = Pairs(
            x.start, y.start, scale, zero, scaled=int(bool(numbers)), along=along, groups=groups,
            channels=channels // groups,
        )  # fmt: skip
    step(b, record, items, [x, *numbers], [y])
    return True


@CPU.register("int_conv1d", "int_conv2d", "int_conv3d")
def lower_int_conv(b: CpuBuilder, layer: Layer) -> None:
    """Lower a convolution of pairs or quads."""
    node = layer.node
    window, halo, clipped = window_of(b, layer)
    k, channels, *_ = b.spec.params[node.params["weight"]].shape
    groups = node.attrs["groups"]
    filters = Filters(groups, cells(channels, node.attrs["reads"]), k // groups)
    x = b.read(node.inputs[0], halo=halo, exact=True)
    residual = None
    if len(node.inputs) > 1:
        name = node.inputs[1]
        residual = b.arranged(b.like(b.values[name], name, layer.name), b.inner(layer.name))
    convolve(b, layer, x, b.write(layer.name), residual, window, filters, clipped, int_contraction)


@CPU.register("int_linear")
def lower_int_linear(b: CpuBuilder, layer: Layer) -> None:
    """Lower ``x @ weight.T`` of pairs or quads: the rows of x are the pixels of one line or more."""
    node = layer.node
    k, c = b.spec.params[node.params["weight"]].shape
    x = b.read(node.inputs[0], inner=-1, exact=True)
    depth = cells(c, node.attrs["reads"])
    rows = b.reshaped(x, (size_of(x.shape[:-1]), depth))
    y = b.write(layer.name, inner=-1)
    m = rows.shape[0]
    out = y.reshape((m, y.shape[-1]))
    if out is None:  # a slice of a concat whose rows are not one run
        out = b.fresh((m, y.shape[-1]), 1, NO_HALO)
    geometry = {"x": (0, 0, rows.strides[0]), "y": (0, 0, out.strides[0]), "r": (0, 0, 0)}
    lines, geometry = merge_lines(b, 1, 1, m, k, geometry)
    terms = reduction(1, 1, depth, 0, 0, True)
    factor = b.values[node.inputs[1]] if len(node.inputs) > 1 else None
    int_contraction(
        b, layer, rows.start, out, None, lines, geometry, terms, channels=k, halo_reads=rows, factor=factor
    )
    if out.buffer != y.buffer:
        b.copy(b.reshaped(out, y.shape), y)


def int_contraction(
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
    clipped: Clipped = INSIDE,
    planes: Planes | None = None,
    factor: View | None = None,
    panel: int = 0,
    **_: Any,
) -> None:
    """Append one "int_conv" step over ``size``, and one over the rest; arguments as of `contraction`."""
    node, machine = layer.node, b.machine
    images, lines, pixels, rest = size
    k, group_cells = b.spec.params[node.params["weight"]].shape[0], terms.size
    group_channels = k // groups
    packed = b.tuning.packed.get(node.params["weight"], 0)
    # a sum takes a cycle
    tiling = line_tiling(replace(machine, fma_latency=1), pixels, group_channels, panel, packed)
    (xi, xl, xc), (yi, yl, yc), (ri, rl, rc) = geometry["x"], geometry["y"], geometry["r"]
    panel_bytes = 4 * group_cells * tiling.width * machine.lanes
    items = choose_items(
        machine, images, lines, tiling.panels * groups, tiling.cycles * images * lines * groups * group_cells,
        4 * lines * max(abs(xl), pixels * abs(xc)), panel_bytes * tiling.panels * groups,
        4 * lines * pixels * channels,
    )  # fmt: skip
    lanes = machine.lanes
    quads = node.attrs["reads"] == "quads"
    recipe = "quad_panels" if quads else "pair_panels"
    panels = b.const(recipe, node.params["weight"], lanes=lanes, width=tiling.width, groups=groups)
    extra_rows = max(1, clipped.filter_rows) if quads else 0

    extras = y.start
    if quads:
        how = {"lanes": lanes, "width": tiling.width, "groups": groups, "rows": extra_rows}
        extras = Operand(b.const("quad_extras", node.params["weight"], **how), 0)
    finish = Finish.of(node.attrs)

    def per_channel(role: str, value: float, over: float = 1.0) -> Operand:
        keys = [node.params[role]] if role in node.params else []
        how = {"channels": k, "lanes": lanes, "groups": groups, "value": value, "over": over}
        return Operand(b.const("channels", *keys, **how), 0)

    acc_col = -(-tiling.width // 2) * 2 * lanes
    scratch = pixels * acc_col + (tiling.width + 2) * lanes
    made, planes = MADE[node.attrs["to"]], planes or Planes(lines)
    record = IntConv(
        x, y.start, residual.start if residual is not None else y.start, Operand(panels, 0),
        per_channel("offset", 0), per_channel("scale", 1.0, finish.over),
        per_channel("shift", 0.0, finish.over), factor.start if factor is not None else y.start,
        Operand(b.const("offsets", values=[4 * o for o in terms.offsets]), 0),
        extras,
        has_residual=int(residual is not None), has_factor=int(factor is not None),
        x_image=4 * xi, x_line=4 * xl, x_col=4 * xc, y_image=4 * yi, y_line=4 * yl, y_col=4 * yc,
        residual_image=4 * ri, residual_line=4 * rl, residual_col=4 * rc,
        images=images, lines=lines, **items._asdict(), panels=tiling.panels * groups,
        taps=len(terms.offsets), depth=terms.depth, windows=clipped.windows, row_taps=clipped.row_taps,
        filter_rows=clipped.filter_rows, plane_lines=planes.lines, x_plane=4 * planes.x,
        y_plane=4 * planes.y, residual_plane=4 * planes.r,
        group_panels=tiling.panels, group_channels=group_channels, x_group_bytes=4 * group_depth,
        group_weight_bytes=4 * group_cells * lanes * tiling.registers, width=tiling.width,
        tail_vecs=tiling.tail, cut=tiling.cut, sweep=_sweep(b, tiling.width, quads),
        tail_sweep=_sweep(b, tiling.tail, quads), acc_col=4 * acc_col, scaled=4 * pixels * acc_col, made=made,
        **finish.fields, adds_quads=int(residual is not None and node.attrs["adds"] == "quads"),
        under=float(node.attrs["under"]), extra_rows=extra_rows,
        extra_at=4 * scratch,
    )  # fmt: skip
    reads = [with_halo(halo_reads), *(v for v in (residual, factor) if v is not None)]
    cells_made = y.shape[1]
    part = part_of(y, size, cells_made, geometry["y"]) if rest and planes.lines == lines else y
    room = scratch + 2 * group_cells * quads  # the offsets of extra cells are int64
    step(b, record, images * items.bands * items.blocks, reads, [part], scratch=room)
    if rest:
        moved = {key: planes.lines * line for key, (_, line, _) in geometry.items()}
        after = Lines(images, lines // planes.lines, rest)
        int_contraction(
            b, layer, Operand(x.buffer, x.at + moved["x"]),
            part_of(y, after, cells_made, geometry["y"], moved["y"]),
            residual and replace(residual, offset=residual.offset + moved["r"]), after, geometry, terms,
            channels, halo_reads, groups, group_depth, clipped, planes._replace(lines=1), factor,
            tiling.width,
        )  # fmt: skip


def _sweep(b: CpuBuilder, vecs: int, quads: bool) -> IntSweep:
    return IntSweep(vecs, max_rows(b.machine, vecs), quads)


class Finish(NamedTuple):
    """What follows a sum: the fields of the record, and what scale and shift are divided by."""

    over: float
    fields: Mapping[str, float]

    @classmethod
    def of(cls, attrs: Mapping[str, Any]) -> "Finish":
        """The same as the op's attributes, with the steps of rounding divided out."""
        low1, high1, step1, least1 = attrs["first"]
        low2, high2, step2, least2 = attrs["second"]
        low1, high1 = _bounds(low1, high1, step1, least1)
        low2, high2 = _bounds(low2, high2, step2, least2)
        over = step2 or 1.0
        fields = {
            "low1": low1, "high1": high1, "rounds1": int(step1 > 0), "own": (attrs["own"] or 1.0) / over,
            "other": attrs["other"] / over, "low2": low2, "high2": high2, "rounds2": int(step2 > 0),
            "least": attrs["second"][3] if step2 else attrs["first"][3],
        }  # fmt: skip
        return cls(step1 or 1.0, fields)


def _bounds(low: float, high: float, by: float, least: float) -> tuple[float, float]:
    """Bounds of what is rounded in steps of ``by``, before it is: those of the result are whole numbers."""
    if not by:
        return low, high
    return min(max(low / by, least), least + 255), max(min(high / by, least + 255), least)
