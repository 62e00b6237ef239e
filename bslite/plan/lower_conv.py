"""conv2d and linear as steps: which taps, which tiles, which items."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from bslite.passes import Layer
from bslite.plan.builder import Builder
from bslite.plan.lowering import epilogue, lowers
from bslite.plan.tiling import LineTiling, choose_items, cut_line, line_length, line_tiling, max_rows
from bslite.plan.views import View, size_of

MAX_DEPTH = (
    1024  # longest running sum: beyond, parts are summed on their own, for accuracy and to stay in cache
)


@lowers("conv2d")
def lower_conv2d(b: Builder, layer: Layer) -> None:
    """A convolution, dense, grouped or depthwise, with residual and activation in its store."""
    node = layer.node
    attrs = node.attrs
    k, cg, r, s = b.spec.params[node.params["weight"]].shape
    (sh, sw), (dh, dw), (top, left, _, _) = attrs["stride"], attrs["dilation"], attrs["padding"]
    depthwise = attrs["groups"] == cg * attrs["groups"] == k and k > 1 and layer.residual is None
    x = b.read(
        node.inputs[0], halo=attrs["padding"], exact=not depthwise
    )  # the GEMM tile loads A by the element
    residual = b.read(layer.residual) if layer.residual is not None else None
    y = b.write(layer.name)
    xi, _, xl, xc = x.strides
    origin = x.offset - top * xl - left * xc
    if depthwise:
        _depthwise(b, layer, x, y, origin, [i * dh * xl + j * dw * xc for i in range(r) for j in range(s)])
        return
    if attrs["groups"] == 1 and dw == 1 and xc == cg:  # a filter row is contiguous in the image
        offsets, depth = [i * dh * xl for i in range(r)], s * cg
    else:
        offsets, depth = [i * dh * xl + j * dw * xc for i in range(r) for j in range(s)], cg
    n, _, p, q = y.shape
    yi, _, yl, yc = y.strides
    geometry = {"x": (xi, sh * xl, sw * xc), "y": (yi, yl, yc), "r": (0, 0, 0)}
    if residual is not None:
        geometry["r"] = (residual.strides[0], residual.strides[2], residual.strides[3])
    if r == s == 1:
        n, p, q, geometry = merge_lines(b, n, p, q, k // attrs["groups"], geometry)
    contraction(
        b, layer, (x.buffer, origin), y, residual, (n, p, q), geometry, offsets, depth,
        channels=k, groups=attrs["groups"], halo_reads=x,
    )  # fmt: skip


@lowers("linear")
def lower_linear(b: Builder, layer: Layer) -> None:
    """``x @ weight.T + bias``: the rows of x are the pixels of a line, or of several if they are many."""
    node = layer.node
    k, c = b.spec.params[node.params["weight"]].shape
    x = b.read(node.inputs[0], inner=-1, exact=True)
    rows = x.reshape((size_of(x.shape[:-1]), c))
    if rows is None:
        rows = b.flat(x).reshape((size_of(x.shape[:-1]), c))
        assert rows is not None
    y = b.write(layer.name, inner=-1)
    out = y.reshape((rows.shape[0], k))
    if out is None:  # a slice of a concat that is not one run of rows
        out = b.fresh((rows.shape[0], k), 1, (0, 0, 0, 0))
    m = rows.shape[0]
    geometry = {"x": (0, 0, rows.strides[0]), "y": (0, 0, out.strides[0]), "r": (0, 0, 0)}
    n, p, q, geometry = merge_lines(b, 1, 1, m, k, geometry)
    contraction(
        b,
        layer,
        (rows.buffer, rows.offset),
        out,
        None,
        (n, p, q),
        geometry,
        [0],
        c,
        channels=k,
        groups=1,
        halo_reads=rows,
    )
    if out.buffer != y.buffer:
        shaped = out.reshape(y.shape)
        assert shaped is not None
        b.copy(shaped, y)


def merge_lines(
    b: Builder, n: int, p: int, q: int, channels: int, geometry: dict[str, tuple[int, int, int]]
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


def split_depth(offsets: Sequence[int], depth: int) -> tuple[list[int], int]:
    """Cut taps deeper than MAX_DEPTH into several of equal depth, if it divides."""
    if depth <= MAX_DEPTH:
        return list(offsets), depth
    parts = next((k for k in range(-(-depth // MAX_DEPTH), depth + 1) if depth % k == 0), 1)
    if depth // parts < MAX_DEPTH // 8:
        return list(offsets), depth
    return [o + i * (depth // parts) for o in offsets for i in range(parts)], depth // parts


def contraction(
    b: Builder,
    layer: Layer,
    x: tuple[str, int],
    y: View,
    residual: View | None,
    size: tuple[int, int, int],
    geometry: dict[str, tuple[int, int, int]],
    offsets: Sequence[int],
    depth: int,
    channels: int,
    groups: int,
    halo_reads: View,
    pack: Callable[[LineTiling], tuple[View, int, int]] | None = None,
) -> None:
    """Append one "conv" step over ``size`` = (images, lines, pixels).

    The weights are the layer's parameter, or what ``pack`` has put into panels by steps of its own: the
    view it gives,
    the element in it where the first image's weights start, and the elements between two images' weights.
    """
    images, lines, pixels = size
    machine = b.machine
    reduction = depth * len(offsets)
    group_bytes = 4 * depth if groups > 1 else 0
    offsets, depth = split_depth(offsets, depth)
    group_channels = channels // groups
    tiling = line_tiling(machine, pixels, group_channels)
    panel_bytes = 4 * reduction * tiling.width * machine.lanes
    chunk_taps = max(
        1, min(len(offsets), int(len(offsets) * (machine.l2 / 4) / panel_bytes), MAX_DEPTH // depth)
    )
    chunk_taps = -(-len(offsets) // -(-len(offsets) // chunk_taps))  # equal chunks
    (xi, xl, xc), (yi, yl, yc), (ri, rl, rc) = geometry["x"], geometry["y"], geometry["r"]
    items = choose_items(
        machine, images, lines, tiling.panels * groups, tiling.cycles * images * lines * groups * reduction,
        4 * lines * max(abs(xl), pixels * abs(xc)), panel_bytes * tiling.panels * groups,
    )  # fmt: skip
    bias = layer.node.params.get("bias")
    reads = [with_halo(halo_reads)] + ([residual] if residual is not None else [])
    weights_image = 0
    if pack is None:
        panels = b.const(
            "panels", layer.node.params["weight"], lanes=machine.lanes, width=tiling.width, groups=groups
        )
        weights = (panels, 0)
    else:
        packed, at, weights_image = pack(tiling)
        weights = (packed.buffer, packed.offset + at)
        reads.append(packed)
    cut = tiling.cut
    args: dict[str, Any] = {
        "has_residual": int(residual is not None),
        "x_image": 4 * xi, "x_line": 4 * xl, "x_col": 4 * xc,
        "y_image": 4 * yi, "y_line": 4 * yl, "y_col": 4 * yc,
        "residual_image": 4 * ri, "residual_line": 4 * rl, "residual_col": 4 * rc,
        "images": images, "lines": lines, **items._asdict(), "panels": tiling.panels * groups,
        "taps": len(offsets), "chunk_taps": chunk_taps, "depth": depth,
        "group_panels": tiling.panels, "group_channels": group_channels,
        "x_group_bytes": group_bytes,
        "group_weight_bytes": 4 * reduction * machine.lanes * ((tiling.panels - 1) * tiling.width +
        tiling.tail),
        "width": tiling.width, "tail_vecs": tiling.tail, **cut._asdict(),
        "sweep": ["gemm_sweep", tiling.width, max_rows(machine, tiling.width)],
        "tail_sweep": ["gemm_sweep", tiling.tail, max_rows(machine, tiling.tail)],
        "minus_inf": -math.inf, "plus_inf": math.inf, "weights_image": 4 * weights_image,
        **epilogue(layer.activation),
    }  # fmt: skip
    biases = b.const(
        "bias_panels", *([bias] if bias else []), channels=channels, lanes=machine.lanes, groups=groups
    )
    table = b.const("offsets", values=[4 * o for o in offsets])
    operands = {
        "x": x,
        "y": (y.buffer, y.offset),
        "weights": weights,
        "bias": (biases, 0),
        "offsets": (table, 0),
    }
    operands["residual"] = (residual.buffer, residual.offset) if residual is not None else operands["y"]
    b.step("conv", images * items.bands * items.blocks, args, operands, reads, [y])


def with_halo(view: View) -> View:
    """The view widened to the zeros around it, which a convolution reads too."""
    top, left, bottom, right = view.halo
    if len(view.shape) != 4 or view.halo == (0, 0, 0, 0):
        return view
    n, c, h, w = view.shape
    offset = view.offset - top * view.strides[2] - left * view.strides[3]
    return View(view.buffer, offset, (n, c, h + top + bottom, w + left + right), view.strides)


def _depthwise(b: Builder, layer: Layer, x: View, y: View, origin: int, offsets: Sequence[int]) -> None:
    """Append one "depthwise" step: one filter per channel."""
    machine, node = b.machine, layer.node
    sh, sw = node.attrs["stride"]
    n, channels, lines, pixels = y.shape
    registers = -(-channels // machine.lanes)
    most = max_rows(machine, 1)
    cut = cut_line(pixels, most)
    taps = len(offsets)
    cycles = registers * taps * lines * n * max(pixels, 4.0 * (cut.tiles1 + cut.tiles2)) / 2 * 1.3
    # A "panel" here is a run of 8 registers of channels: long enough for the prefetcher, short enough to
    # divide.
    run = min(registers, 8)
    items = choose_items(
        machine,
        n,
        lines,
        -(-registers // run),
        cycles,
        4 * abs(x.strides[2]) * x.shape[2],
        4 * taps * registers * machine.lanes,
    )
    args: dict[str, Any] = {
        "x_image": 4 * x.strides[0], "x_line": 4 * sh * x.strides[2], "x_col": 4 * sw * x.strides[3],
        "y_image": 4 * y.strides[0], "y_line": 4 * y.strides[2], "y_col": 4 * y.strides[3],
        "lines": lines, "band_lines": items.band_lines, "bands": items.bands, "blocks": items.blocks,
        "block_registers": items.block_panels * run, "channels": channels, "taps": taps, **cut._asdict(),
        "sweep": ["depthwise_sweep", most],
        **epilogue(layer.activation),
    }  # fmt: skip
    bias = node.params.get("bias")
    weights = b.const("depthwise", node.params["weight"], lanes=machine.lanes)
    biases = b.const(
        "bias_panels", *([bias] if bias else []), channels=channels, lanes=machine.lanes, groups=1
    )
    table = b.const("offsets", values=[4 * o for o in offsets])
    operands = {
        "x": (x.buffer, origin), "y": (y.buffer, y.offset),
        "weights": (weights, 0), "bias": (biases, 0), "offsets": (table, 0),
    }  # fmt: skip
    b.step("depthwise", n * items.bands * items.blocks, args, operands, [with_halo(x)], [y])
