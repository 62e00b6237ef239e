"""conv2d as steps: dense and grouped as a contraction, depthwise on a kernel of its own."""

from __future__ import annotations

import math
from typing import Any

from bslite.machine import Machine
from bslite.passes import Layer
from bslite.plan.builder import Builder, halo_of
from bslite.plan.contraction import contraction, merge_lines
from bslite.plan.lowering import epilogue, lowers
from bslite.plan.reduction import reduction
from bslite.plan.tiling import TALLEST, choose_items, cut_line
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
    start, (above, _, below, _), halo = halo_of(layer, maps, b.crop)
    rows = {"start": start, "row_step": sh, "row_dilation": dh, "rows": b.shapes[node.inputs[0]][2]}
    depthwise = attrs["groups"] == cg * attrs["groups"] == k and k > 1 and layer.residual is None
    x = b.read(node.inputs[0], halo=halo, exact=not depthwise)  # the GEMM tile loads A by the element
    residual = None
    if layer.residual is not None:
        residual = b.arranged(b.like(b.values[layer.residual], layer.residual, layer.name))
    y = b.write(layer.name)
    xi, _, xl, xc = x.strides
    origin = x.offset + start * xl - left * xc
    if depthwise:
        _depthwise(b, layer, x, y, origin, rows)
        return
    merged = attrs["groups"] == 1 and dw == 1 and xc == cg  # a filter row is contiguous in the image
    terms = reduction(r, s, cg, dh * xl, dw * xc, merged)
    n, _, p, q = y.shape
    yi, _, yl, yc = y.strides
    geometry = {"x": (xi, sh * xl, sw * xc), "y": (yi, yl, yc), "r": (0, 0, 0)}
    if residual is not None:
        geometry["r"] = (residual.strides[0], residual.strides[2], residual.strides[3])
    clipped = bool(above or below)
    if r == s == 1 and not clipped:
        n, p, q, geometry = merge_lines(b, n, p, q, k // attrs["groups"], geometry)
    contraction(
        b, layer, (x.buffer, origin), y, residual, (n, p, q), geometry, terms,
        channels=k, groups=attrs["groups"], group_depth=cg if attrs["groups"] > 1 else 0, halo_reads=x,
        rows={**rows, "row_taps": len(terms.offsets) // r * clipped, "filter_rows": r},
    )  # fmt: skip


#: Widths and horizontal strides of filters that have a microkernel of their own; dilation 1.
BY_FILTER_ROWS = {(cols, stride) for cols in (3, 5, 7) for stride in (1, 2)}
PER_OUTPUT = (
    6.0  # cycles that a register of outputs takes besides its multiply-adds, mostly moving through L2
)


def channel_run(machine: Machine, registers: int, lines: int, pixels: int, pixel: int) -> int:
    """How many registers of channels to take through all lines of an image before the next ones.

    So many that ``lines`` lines of them, ``pixels`` long, stay in L1, for most of them are read again for the
    next line of output. Pixels are ``pixel`` bytes apart; where that is a multiple of 2, 4, ... registers,
    only every second, fourth, ... set of L1 holds any of so few, and fewer registers make no more room.
    Where none stay, all of them: what comes from further away had better lie together.
    """
    register = 4 * machine.lanes
    fits = int(0.7 * machine.l1) // (lines * pixels * register)
    if fits < min(registers, max(1, math.gcd(pixel, 4096) // register)):
        return registers
    return -(-registers // -(-registers // fits))


def _depthwise(b: Builder, layer: Layer, x: View, y: View, origin: int, rows: dict[str, int]) -> None:
    """Append one "depthwise" step: one filter per channel. ``rows``: cells that say where windows lie."""
    machine, node = b.machine, layer.node
    (sh, sw), (dh, dw) = node.attrs["stride"], node.attrs["dilation"]
    filter_rows, cols = b.spec.params[node.params["weight"]].shape[2:]
    n, channels, lines, pixels = y.shape
    registers = -(-channels // machine.lanes)
    xi, _, xl, xc = x.strides
    tile = (cols, sw) if (cols, sw) in BY_FILTER_ROWS and dw == 1 else (0, 0)
    # accumulators, the weights of a filter row (or one at a time), and as many pixels as the stride goes over
    most = max(1, min(TALLEST, machine.registers - max(tile[0], 1) - max(tile[1], 1)))
    cut = cut_line(pixels, most)
    steady = max(pixels, machine.fma_latency * (cut.tiles1 + cut.tiles2))
    # a pixel loaded for every multiply-add halves their rate
    per_output = filter_rows * cols / machine.fma_ports * (1 if tile[0] else 2) + PER_OUTPUT
    cycles = registers * lines * n * steady * per_output
    run = channel_run(machine, registers, filter_rows, x.shape[3], 4 * abs(xc))
    items = choose_items(
        machine,
        n,
        lines,
        -(-registers // run),
        cycles,
        4 * abs(x.strides[2]) * x.shape[2],
        4 * filter_rows * cols * registers * machine.lanes,
        4 * lines * pixels * channels,
    )
    args: dict[str, Any] = {
        "x_image": 4 * xi, "x_line": 4 * sh * xl, "x_col": 4 * sw * xc,
        "x_row": 4 * dh * xl, "x_tap": 4 * dw * xc,
        "y_image": 4 * y.strides[0], "y_line": 4 * y.strides[2], "y_col": 4 * y.strides[3],
        "lines": lines, "band_lines": items.band_lines, "bands": items.bands, "blocks": items.blocks,
        "block_registers": items.block_panels * run, "run": run, "channels": channels,
        "filter_rows": filter_rows, "filter_cols": cols, **rows, **cut._asdict(),
        "sweep": ["depthwise_sweep", *tile, most],
        **epilogue(layer.activation),
    }  # fmt: skip
    bias = node.params.get("bias")
    weights = b.const("depthwise", node.params["weight"], lanes=machine.lanes)
    biases = b.const(
        "bias_panels", *([bias] if bias else []), channels=channels, lanes=machine.lanes, groups=1
    )
    operands = {
        "x": (x.buffer, origin), "y": (y.buffer, y.offset),
        "weights": (weights, 0), "bias": (biases, 0),
    }  # fmt: skip
    b.step("depthwise", n * items.bands * items.blocks, args, operands, [with_halo(x)], [y])
