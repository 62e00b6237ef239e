"""Normalisation layers as steps. Batch norm is a pointwise layer: its statistics are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bslite.passes import Layer
from bslite.plan.core.loops import merged_axes
from bslite.plan.core.lowering import CPU
from bslite.plan.core.views import NO_HALO, View, contiguous, size_of
from bslite.plan.cpu.rows import row_layer, row_step, writable
from bslite.plan.cpu.sharing import share_image, share_rows
from bslite.plan.cpu.step import CpuBuilder, untyped

BAND_PIXELS = 512  # of a partial sum; by size alone, so that results do not depend on the number of threads


def _affine(b: CpuBuilder, layer: Layer) -> tuple[dict[str, Any], dict[str, str | None]]:
    """The cells and the constants that weight and bias take, whether they are there or not."""
    keys = {role: layer.node.params.get(role) for role in layer.node.declaration.params}
    cells: dict[str, Any] = {f"has_{role}": int(key is not None) for role, key in keys.items()}
    consts = {role: b.const("param", key) if key is not None else None for role, key in keys.items()}
    return {**cells, "eps": float(layer.node.attrs["eps"])}, consts


@CPU.register("normalize")
def lower_normalize(b: CpuBuilder, layer: Layer) -> None:
    """Along any axis: it is made contiguous first."""
    attrs, shape = layer.node.attrs, b.shapes[layer.name]
    axis = attrs["axis"] % len(shape)
    cycles = 100 + 4.0 * -(-shape[axis] // b.machine.lanes)
    row_layer(b, layer, "normalize", axis, cycles, args={"eps": float(attrs["eps"])})


@CPU.register("layer_norm", "rms_norm")
def lower_layer_norm(b: CpuBuilder, layer: Layer) -> None:
    """Over the last axis where the value lies; over more of them in row-major order, where they are one."""
    shape, axes = b.shapes[layer.name], len(layer.node.attrs["normalized_shape"])
    args, consts = _affine(b, layer)
    lead, length = shape[: len(shape) - axes], size_of(shape[len(shape) - axes :])
    cycles = 120 + 6.0 * -(-length // b.machine.lanes)
    if axes == 1:
        row_layer(b, layer, layer.node.op, len(lead), cycles, args=args, consts=consts)
        return
    x = b.flat(b.values[layer.node.inputs[0]])
    home = b.write(layer.name)
    y = home
    if any(n > 1 and s != e for n, s, e in zip(shape, home.strides, contiguous(shape), strict=True)):
        y = View(b.buffer(size_of(shape)).name, 0, shape, contiguous(shape))
    rows_x, rows_y = x.reshape((*lead, length)), y.reshape((*lead, length))
    assert rows_x is not None
    assert rows_y is not None
    row_step(b, layer.node.op, rows_x, rows_y, len(lead), cycles, args, consts)
    if y is not home:
        b.copy(y, home)


@CPU.register("lrn")
def lower_lrn(b: CpuBuilder, layer: Layer) -> None:
    """Over windows of channels, which become contiguous."""
    attrs, lanes = layer.node.attrs, b.machine.lanes
    size, beta = attrs["size"], attrs["beta"]
    length = b.shapes[layer.name][1]
    below, above = size // 2, (size - 1) // 2
    padded = -(-length // lanes) * lanes
    work = -(-(below + padded + -(-above // lanes) * lanes) // lanes) * lanes
    args: dict[str, Any] = {
        "work_bytes": 4 * work, "below": below, "above": above,
        "alpha": attrs["alpha"] / size, "k": float(attrs["k"]),
        "power": {0.0: 0, 0.5: 1, 0.75: 2, 1.0: 3}.get(beta, 4), "beta": float(beta),
    }  # fmt: skip
    row_layer(b, layer, "lrn", 1, 40 + padded / lanes * (60 + size), args=args, work=work)


@CPU.register("group_norm")
def lower_group_norm(b: CpuBuilder, layer: Layer) -> None:
    """Moments of channels, statistics of groups, then every pixel: three steps."""
    x = b.read(layer.node.inputs[0], inner=1, exact=True)
    y, home = writable(b, layer.name, 1)
    size = _lines(x.shape, [x, y])
    if size is None:
        x, target = _plain(b, x), b.fresh(y.shape, 1, NO_HALO)
        size = _lines(x.shape, [x, target])
        assert size is not None
    else:
        target = y
    _group_norm(b, layer, x, target, *size)
    if target is not home:
        b.copy(target, home)


def _plain(b: CpuBuilder, view: View) -> View:
    """A copy with the channels innermost and the other axes in order."""
    fresh = b.fresh(view.shape, 1, NO_HALO)
    b.copy(view, fresh)
    return fresh


def _lines(
    shape: Sequence[int], views: Sequence[View]
) -> tuple[tuple[int, int], Sequence[tuple[int, int]]] | None:
    """The axes after the channels as lines of pixels, with each view's strides; None where they are more."""
    sizes, runs = merged_axes(tuple(shape[2:]), [v.strides[2:] for v in views], by=1)
    if len(shape) == 4:
        sizes, runs = list(shape[2:]), [list(v.strides[2:]) for v in views]
    if len(sizes) > 2:
        return None
    if len(sizes) == 1:  # cut it where it divides
        pixels = max(d for d in range(1, min(sizes[0], BAND_PIXELS) + 1) if sizes[0] % d == 0)
        sizes, runs = [sizes[0] // pixels, pixels], [[pixels * run[0], run[0]] for run in runs]
    if not sizes:
        sizes, runs = [1, 1], [[0, 0] for _ in runs]
    return (sizes[0], sizes[1]), [(run[0], run[1]) for run in runs]


def _group_norm(
    b: CpuBuilder,
    layer: Layer,
    x: View,
    y: View,
    size: tuple[int, int],
    strides: Sequence[tuple[int, int]],
) -> None:
    """Append the steps for images of ``size`` (lines, pixels), strides of both in x and in y."""
    (lines, pixels), (x_strides, y_strides) = size, strides
    n, channels = x.shape[:2]
    machine = b.machine
    registers = -(-channels // machine.lanes)
    padded = -(-registers // 2) * 2 * machine.lanes
    band_lines = min(lines, max(1, BAND_PIXELS // pixels))
    bands = -(-lines // band_lines)
    loads = float(n * registers * lines * pixels)
    shape = {"lines": lines, "pixels": pixels, "channels": channels, "padded": padded}
    from_x = {"x_image": 4 * x.strides[0], "x_line": 4 * x_strides[0], "x_pixel": 4 * x_strides[1]}
    moments = _table(b, n * bands * 3 * padded)
    scales = _table(b, n * 3 * padded)

    blocks = share_image(machine, n * bands, 1, channels, 3 * loads)
    cut = {**blocks.numbers(), "band_lines": band_lines, "bands": bands}
    operands = {"x": (x.buffer, x.offset), "moments": (moments.buffer, 0)}
    untyped(
        b, "channel_moments", n * bands * blocks.blocks, {**shape, **from_x, **cut}, operands, [x], [moments]
    )

    args, consts = _affine(b, layer)
    groups = layer.node.attrs["num_groups"]
    item_groups, items = share_rows(machine, n * groups, 8.0 * n * channels * bands)
    args |= {
        "groups": groups, "item_groups": item_groups, "all_groups": n * groups,
        "group_channels": channels // groups, "padded": padded, "lines": lines, "pixels": pixels,
        "band_lines": band_lines, "bands": bands,
    }  # fmt: skip
    operands = {"moments": (moments.buffer, 0), "scales": (scales.buffer, 0)}
    operands |= {role: (name, 0) if name else operands["moments"] for role, name in consts.items()}
    untyped(b, "group_scales", items, args, operands, [moments], [scales])

    shares = share_image(machine, n, lines, channels, 2 * loads)
    to_y = {"y_image": 4 * y.strides[0], "y_line": 4 * y_strides[0], "y_pixel": 4 * y_strides[1]}
    operands = {"x": (x.buffer, x.offset), "y": (y.buffer, y.offset), "scales": (scales.buffer, 0)}
    items = n * shares.bands * shares.blocks
    untyped(
        b, "scale_pixels", items, {**shape, **from_x, **to_y, **shares.numbers()}, operands, [x, scales], [y]
    )


def _table(b: CpuBuilder, size: int) -> View:
    """Memory for intermediate statistics."""
    return View(b.buffer(size).name, 0, (size,), (1,))
