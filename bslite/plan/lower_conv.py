"""conv2d as steps: dense and grouped as a contraction, depthwise on a kernel of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bslite.passes import Layer
from bslite.plan.builder import Builder, halo_of
from bslite.plan.contraction import contraction, merge_lines
from bslite.plan.lowering import epilogue, lowers
from bslite.plan.reduction import reduction
from bslite.plan.tiling import choose_items, cut_line, max_rows
from bslite.plan.views import View, with_halo


@lowers("conv2d")
def lower_conv2d(b: Builder, layer: Layer) -> None:
    """A convolution, dense, grouped or depthwise, with residual and activation in its store."""
    node = layer.node
    attrs = node.attrs
    k, cg, r, s = b.spec.params[node.params["weight"]].shape
    (sh, sw), (dh, dw), left = attrs["stride"], attrs["dilation"], attrs["padding"][1]
    maps = node.declaration.rows(b.spec.param_shapes(node), attrs)
    assert maps is not None
    start, halo = halo_of(layer, maps, b.crop)
    depthwise = attrs["groups"] == cg * attrs["groups"] == k and k > 1 and layer.residual is None
    x = b.read(node.inputs[0], halo=halo, exact=not depthwise)  # the GEMM tile loads A by the element
    residual = None
    if layer.residual is not None:
        residual = b.arranged(b.like(b.values[layer.residual], layer.residual, layer.name))
    y = b.write(layer.name)
    xi, _, xl, xc = x.strides
    origin = x.offset + start * xl - left * xc
    if depthwise:
        _depthwise(b, layer, x, y, origin, [i * dh * xl + j * dw * xc for i in range(r) for j in range(s)])
        return
    merged = attrs["groups"] == 1 and dw == 1 and xc == cg  # a filter row is contiguous in the image
    terms = reduction(r, s, cg, dh * xl, dw * xc, merged)
    n, _, p, q = y.shape
    yi, _, yl, yc = y.strides
    geometry = {"x": (xi, sh * xl, sw * xc), "y": (yi, yl, yc), "r": (0, 0, 0)}
    if residual is not None:
        geometry["r"] = (residual.strides[0], residual.strides[2], residual.strides[3])
    if r == s == 1:
        n, p, q, geometry = merge_lines(b, n, p, q, k // attrs["groups"], geometry)
    contraction(
        b, layer, (x.buffer, origin), y, residual, (n, p, q), geometry, terms,
        channels=k, groups=attrs["groups"], group_depth=cg if attrs["groups"] > 1 else 0, halo_reads=x,
    )  # fmt: skip


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
