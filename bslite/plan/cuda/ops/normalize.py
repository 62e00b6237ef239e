"""Normalisation layers. Batch norm is a pointwise layer: its statistics are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bslite.passes import Layer
from bslite.plan.core.loops import merged_axes, padded
from bslite.plan.core.lowering import CUDA
from bslite.plan.core.views import NO_HALO, View, contiguous, size_of
from bslite.plan.cpu.rows import writable
from bslite.plan.cuda.launch import CudaBuilder, untyped
from bslite.plan.cuda.rows import block_threads, power_above, row_layer, row_step

LAYER, RMS, UNIT = 0, 1, 2  # kinds of `kernels.cuda.rows.normalize`
ACROSS = 32  # channels side by side in a block
BAND = 512  # pixels of a partial sum at least; by size alone, so that results do not depend on the machine
BLOCKS = 512  # that are enough: more bands of few images would only be more sums to join


def _affine(b: CudaBuilder, layer: Layer) -> tuple[dict[str, int], dict[str, str | None]]:
    """Which of weight and bias there are, and their constants."""
    keys = {role: layer.node.params.get(role) for role in ("weight", "bias")}
    there = {"weighted": int(keys["weight"] is not None), "biased": int(keys["bias"] is not None)}
    return there, {role: b.const("param", key) if key is not None else None for role, key in keys.items()}


@CUDA.register("normalize")
def lower_normalize(b: CudaBuilder, layer: Layer) -> None:
    """Along any axis: it is made contiguous first."""
    attrs = layer.node.attrs
    there, consts = _affine(b, layer)
    row_layer(
        b, layer, "normalize_rows", attrs["axis"] % len(b.shapes[layer.name]),
        variant={"kind": UNIT, **there}, scalars={"eps": float(attrs["eps"])}, consts=consts,
        parted="normalize",
    )  # fmt: skip


@CUDA.register("layer_norm", "rms_norm")
def lower_layer_norm(b: CudaBuilder, layer: Layer) -> None:
    """Over the last axis where the value lies; over more of them in row-major order, where they are one."""
    shape, axes = b.shapes[layer.name], len(layer.node.attrs["normalized_shape"])
    there, consts = _affine(b, layer)
    more: dict[str, Any] = {
        "variant": {"kind": LAYER if layer.node.op == "layer_norm" else RMS, **there},
        "scalars": {"eps": float(layer.node.attrs["eps"])}, "consts": consts, "parted": "normalize",
    }  # fmt: skip
    lead, length = shape[: len(shape) - axes], size_of(shape[len(shape) - axes :])
    if axes == 1:
        row_layer(b, layer, "normalize_rows", len(lead), **more)
        return
    x = b.flat(b.values[layer.node.inputs[0]])
    home = b.write(layer.name)
    y = home
    if any(n > 1 and s != e for n, s, e in zip(shape, home.strides, contiguous(shape), strict=True)):
        y = View(b.buffer(size_of(shape)).name, 0, shape, contiguous(shape))
    rows_x, rows_y = x.reshape((*lead, length)), y.reshape((*lead, length))
    assert rows_x is not None
    assert rows_y is not None
    row_step(b, "normalize_rows", rows_x, rows_y, len(lead), **more)
    if y is not home:
        b.copy(y, home)


@CUDA.register("lrn")
def lower_lrn(b: CudaBuilder, layer: Layer) -> None:
    """Over windows of channels, which become contiguous."""
    attrs = layer.node.attrs
    size, beta = attrs["size"], attrs["beta"]
    power = {0.0: 0, 0.5: 1, 0.75: 2, 1.0: 3}.get(beta, 4)
    scalars = {
        "below": size // 2, "above": (size - 1) // 2, "alpha": attrs["alpha"] / size,
        "k": float(attrs["k"]), "beta": float(beta),
    }  # fmt: skip
    row_layer(b, layer, "lrn", 1, variant={"power": power}, scalars=scalars, per="element")


@CUDA.register("group_norm")
def lower_group_norm(b: CudaBuilder, layer: Layer) -> None:
    """Sums of channels, statistics of groups, then every pixel: three launches."""
    x = b.read(layer.node.inputs[0], inner=1)
    y, home = writable(b, layer.name, 1)
    lines = _lines(x, y)
    if lines is None:
        plain_x, y = b.fresh(x.shape, 1, NO_HALO), b.fresh(x.shape, 1, NO_HALO)
        b.copy(x, plain_x)
        x, lines = plain_x, _lines(plain_x, y)
        assert lines is not None
    _group_norm(b, layer, x, y, *lines)
    if y is not home:
        b.copy(y, home)


def _lines(x: View, y: View) -> tuple[int, Sequence[int], Sequence[int]] | None:
    """The axes after the channels as lines of pixels: pixels of a line, strides of lines and of pixels in x
    and in y. None where they are more axes.
    """
    sizes, runs = merged_axes(x.shape[2:], [v.strides[2:] for v in (x, y)], by=1)
    if len(sizes) > 2:
        return None
    sizes, (xs, ys) = padded(sizes, runs, 2)
    return sizes[1], xs, ys


def _group_norm(
    b: CudaBuilder, layer: Layer, x: View, y: View, columns: int, xs: Sequence[int], ys: Sequence[int]
) -> None:
    n, channels = x.shape[:2]
    pixels = size_of(x.shape[2:])
    groups = layer.node.attrs["num_groups"]
    threads = block_threads(b)
    across = min(ACROSS, threads // 4, power_above(channels))
    bands = min(-(-pixels // BAND), -(-BLOCKS // max(1, n * -(-channels // across))))
    band = -(-pixels // bands)
    shape = {"across": across, "down": threads // across}
    grid, block = [-(-channels // across), bands, n], [across, threads // across]
    size = {"channels": channels, "pixels": pixels, "columns": columns}
    from_x = {"x_image": x.strides[0], "x_line": xs[0], "x_pixel": xs[1]}
    to_y = {"y_image": y.strides[0], "y_line": ys[0], "y_pixel": ys[1]}
    sums = _table(b, n * bands * channels * 4)
    scales = _table(b, n * 3 * channels)
    source, made = {"x": (x.buffer, x.offset)}, {"scales": (scales.buffer, 0)}

    untyped(
        b, "channel_sums", shape, grid, block, {**size, **from_x, "bands": bands, "band": band},
        {**source, "sums": (sums.buffer, 0)}, [x], [sums],
    )  # fmt: skip
    there, consts = _affine(b, layer)
    weights = {role: (name, 0) if name else source["x"] for role, name in consts.items()}
    group = channels // groups
    numbers = {
        "channels": channels, "group": group, "bands": bands, "count": group * pixels,
        "eps": float(layer.node.attrs["eps"]),
    }  # fmt: skip
    untyped(
        b, "group_scales", {"threads": threads, **there}, [groups, n], [threads], numbers,
        {"sums": (sums.buffer, 0), **weights, **made}, [sums], [scales],
    )  # fmt: skip
    untyped(
        b, "scale_pixels", shape, grid, block, {**size, **from_x, **to_y, "band": band},
        {**source, "y": (y.buffer, y.offset), **made}, [x, scales], [y],
    )  # fmt: skip


def _table(b: CudaBuilder, cells: int) -> View:
    """Memory for intermediate statistics."""
    return View(b.buffer(cells).name, 0, (cells,), (1,))
