"""Resizing as a step: the tables that say which input pixels an output pixel is made of."""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

from bslite.passes import Layer
from bslite.plan.core.lowering import CPU
from bslite.plan.cpu.sharing import share_image
from bslite.plan.cpu.step import CpuBuilder, untyped


class Blend(NamedTuple):
    """``(1 - fraction) * x[low] + fraction * x[high]``."""

    low: int
    high: int
    fraction: float


def nearest_sources(have: int, out: int, scale: float | None) -> list[int]:
    """Input index of each output index, by torch's rule: products in float32, an exact doubling exactly."""
    ratio = 1 / scale if scale and out not in (have, 2 * have) else have / out
    return [min(math.floor(_float32(i * _float32(ratio))), have - 1) for i in range(out)]


def bilinear_blends(have: int, out: int, scale: float | None, align_corners: bool) -> list[Blend]:
    """What each output index is made of, positions in float64."""
    if out == have:
        return [Blend(i, i, 0.0) for i in range(out)]
    blends = []
    for i in range(out):
        if align_corners:
            position = i * ((have - 1) / (out - 1)) if out > 1 else 0.0
        else:
            position = max((i + 0.5) * (1 / scale if scale else have / out) - 0.5, 0.0)
        low = min(math.floor(position), have - 1)
        blends.append(Blend(low, min(low + 1, have - 1), min(max(position - low, 0.0), 1.0)))
    return blends


def _float32(x: float) -> float:
    """``x`` rounded to float32."""
    return float(struct.unpack("f", struct.pack("f", x))[0])


def _bits(x: float) -> int:
    """``x`` as float32 in the low half of a cell, which is how kernels read a float from a table."""
    return int(struct.unpack("I", struct.pack("f", x))[0])


@CPU.register("upsample")
def lower_upsample(b: CpuBuilder, layer: Layer) -> None:
    """Nearest: a table of input rows and one of columns. Bilinear: two of each, and their weights."""
    attrs = layer.node.attrs
    x = b.read(layer.node.inputs[0], exact=True)
    y = b.write(layer.name)
    n, channels, lines, pixels = y.shape
    tables: dict[str, list[int]] = {}
    for role, axis, scale in zip(("rows", "cols"), (2, 3), attrs["scale"] or (None, None), strict=True):
        have, out, stride = x.shape[axis], y.shape[axis], 4 * x.strides[axis]
        if attrs["mode"] == "nearest":
            tables[role] = [stride * i for i in nearest_sources(have, out, scale)]
        else:
            tables[role] = [
                cell
                for low, high, part in bilinear_blends(have, out, scale, attrs["align_corners"])
                for cell in (stride * low, stride * high, _bits(1 - part), _bits(part))
            ]
    registers = -(-channels // b.machine.lanes)
    shares = share_image(b.machine, n, lines, channels, 10.0 * n * registers * lines * pixels)
    args: dict[str, Any] = {
        "x_image": 4 * x.strides[0],
        "y_image": 4 * y.strides[0], "y_line": 4 * y.strides[2], "y_pixel": 4 * y.strides[3],
        "lines": lines, "pixels": pixels, "channels": channels, **shares.numbers(),
    }  # fmt: skip
    operands = {"x": (x.buffer, x.offset), "y": (y.buffer, y.offset)}
    operands |= {role: (b.const("offsets", values=cells), 0) for role, cells in tables.items()}
    untyped(b, f"upsample_{attrs['mode']}", n * shares.bands * shares.blocks, args, operands, [x], [y])
