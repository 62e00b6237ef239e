"""The "conv" step: convolution, linear layers and matmul as batch-reduce GEMM over lines of pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bslite.passes import Layer
from bslite.plan.core.views import View, with_halo
from bslite.plan.cpu.epilogue import epilogue
from bslite.plan.cpu.reduction import Reduction
from bslite.plan.cpu.step import CpuBuilder, untyped
from bslite.plan.cpu.tiling import LineTiling, choose_items, line_length, line_tiling, max_rows


def merge_lines(
    b: CpuBuilder, n: int, p: int, q: int, channels: int, geometry: dict[str, tuple[int, int, int]]
) -> tuple[int, int, int, dict[str, tuple[int, int, int]]]:
    """Where pixels are evenly spaced across lines (and images), re-cut them into lines that suit the register
    tile.
    """
    used = [g for g in geometry.values() if g != (0, 0, 0)]
    if p > 1 and all(line == q * col for _, line, col in used):
        q, p = q * p, 1
    if n > 1 and p == 1 and all(image == q * col for image, _, col in used):
        q, n = q * n, 1
    if p > 1:
        return n, p, q, geometry
    length = line_length(b.machine, q, channels)
    recut = {key: (image, length * col, col) for key, (image, _, col) in geometry.items()}
    return n, q // length, length, recut


class Planes(NamedTuple):
    """Of a volume: lines of a plane of the output, and elements between planes."""

    lines: int
    x: int = 0
    y: int = 0
    r: int = 0


#: Cells of windows that are all inside.
INSIDE = {
    "start": 0, "row_step": 0, "row_dilation": 1, "rows": 0, "row_taps": 0, "filter_rows": 0,
    "clip_planes": 0,
}  # fmt: skip


def contraction(
    b: CpuBuilder,
    layer: Layer,
    x: tuple[str, int],
    y: View,
    residual: View | None,
    size: tuple[int, int, int],
    geometry: dict[str, tuple[int, int, int]],
    terms: Reduction,
    channels: int,
    groups: int,
    group_depth: int,
    halo_reads: View,
    pack: Callable[[LineTiling], tuple[View, int, int]] | None = None,
    rows: dict[str, int] | None = None,
    bias: str | None = None,
    planes: Planes | None = None,
    recipe: str = "panels",
    how: Mapping[str, Any] | None = None,
) -> None:
    """Append one "conv" step over ``size`` = (images, lines, pixels).

    The weights are the layer's parameter, or what ``pack`` has put into panels by steps of its own: the
    view it gives, the element in it where the first image's weights start, and the elements between two
    images' weights. ``group_depth``: input channels of a group, 0 where there is but one. ``rows``: cells
    that say where windows leave the image, if any do. ``bias``: a constant in panels, in place of the
    layer's. ``planes``: where the lines are those of several planes. ``recipe``, and ``how``: what makes
    panels of the parameter.
    """
    images, lines, pixels = size
    machine = b.machine
    group_channels = channels // groups
    tiling = line_tiling(machine, pixels, group_channels)
    panel_bytes = 4 * terms.size * tiling.width * machine.lanes
    (xi, xl, xc), (yi, yl, yc), (ri, rl, rc) = geometry["x"], geometry["y"], geometry["r"]
    items = choose_items(
        machine, images, lines, tiling.panels * groups, tiling.cycles * images * lines * groups * terms.size,
        4 * lines * max(abs(xl), pixels * abs(xc)), panel_bytes * tiling.panels * groups,
        4 * lines * pixels * channels,
    )  # fmt: skip
    reads = [with_halo(halo_reads)] + ([residual] if residual is not None else [])
    weights_image = 0
    if pack is None:
        panels = b.const(
            recipe, layer.node.params["weight"], lanes=machine.lanes, width=tiling.width, groups=groups,
            **(how or {}),
        )  # fmt: skip
        weights = (panels, 0)
    else:
        packed, at, weights_image = pack(tiling)
        weights = (packed.buffer, packed.offset + at)
        reads.append(packed)
    cut, planes = tiling.cut, planes or Planes(lines)
    args: dict[str, Any] = {
        "has_residual": int(residual is not None),
        "x_image": 4 * xi, "x_line": 4 * xl, "x_col": 4 * xc,
        "y_image": 4 * yi, "y_line": 4 * yl, "y_col": 4 * yc,
        "residual_image": 4 * ri, "residual_line": 4 * rl, "residual_col": 4 * rc,
        "images": images, "lines": lines, **items._asdict(), "panels": tiling.panels * groups,
        "taps": len(terms.offsets), "chunk_taps": terms.chunk_taps, "depth": terms.depth,
        "group_panels": tiling.panels, "group_channels": group_channels,
        "x_group_bytes": 4 * group_depth,
        "group_weight_bytes": 4 * terms.size * machine.lanes * ((tiling.panels - 1) * tiling.width +
        tiling.tail),
        "width": tiling.width, "tail_vecs": tiling.tail, **cut._asdict(),
        "sweep": ["gemm_sweep", tiling.width, max_rows(machine, tiling.width)],
        "tail_sweep": ["gemm_sweep", tiling.tail, max_rows(machine, tiling.tail)],
        "minus_inf": -math.inf, "plus_inf": math.inf, "weights_image": 4 * weights_image,
        "plane_lines": planes.lines, "x_plane": 4 * planes.x, "y_plane": 4 * planes.y,
        "residual_plane": 4 * planes.r, **(rows or INSIDE), **epilogue(layer.activation).numbers(),
    }  # fmt: skip
    own = layer.node.params.get("bias")
    biases = bias or b.const(
        "bias_panels", *([own] if own else []), channels=channels, lanes=machine.lanes, groups=groups
    )
    table = b.const("offsets", values=[4 * o for o in terms.offsets])
    operands = {
        "x": x,
        "y": (y.buffer, y.offset),
        "weights": weights,
        "bias": (biases, 0),
        "offsets": (table, 0),
    }
    operands["residual"] = (residual.buffer, residual.offset) if residual is not None else operands["y"]
    untyped(b, "conv", images * items.bands * items.blocks, args, operands, reads, [y])
