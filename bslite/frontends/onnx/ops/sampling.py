"""Builders of GridSample, Col2Im and LpPool."""

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.windows import Ints, padded, spatial, windows
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Operand

#: How earlier opsets call the modes.
MODES = {"bilinear": "linear", "bicubic": "cubic"}


@onnx_op("GridSample", since=16)
def grid_sample(
    s: Site, x: Operand, grid: Operand, *, align_corners: int, mode: str, padding_mode: str
) -> Operand:
    return s.emit(
        "grid_sample", x, grid,
        mode=MODES.get(mode, mode), padding=padding_mode, align_corners=bool(align_corners),
    )  # fmt: skip


@onnx_op("Col2Im", since=18)
def col2im(
    s: Site, x: Operand, image_shape: Operand, block_shape: Operand, *, dilations: Ints | None,
    pads: Ints | None, strides: Ints | None,
) -> Operand:  # fmt: skip
    kernel, axes = s.ints(block_shape, "its block_shape"), len(s.ints(image_shape, "its image_shape"))
    return s.emit(
        "fold", x,
        output_size=s.ints(image_shape, "its image_shape"), kernel=kernel, stride=strides or (1,) * axes,
        padding=pads or (0,) * 2 * axes, dilation=dilations or (1,) * axes,
    )  # fmt: skip


@onnx_op("LpPool")
def lp_pool(
    s: Site, x: Operand, *, auto_pad: str, ceil_mode: int = 0, dilations: Ints | None = None,
    kernel_shape: Ints, p: int, pads: Ints | None, strides: Ints | None,
) -> Operand:  # fmt: skip
    """``(sum of |x|**p over the window) ** (1/p)``: sums as an average pool that divides by 1."""
    if p < 1:
        raise SpecError(f"its p is {p}, expected 1 or more")
    n = spatial(kernel_shape)
    how = windows(x, kernel_shape, strides, pads, dilations, auto_pad)
    power = s.inner("abs", x)
    if p != 1:
        power = s.inner("pow", power, s.const(np.float32(p), "p"))
    power = padded(s, power, kernel_shape, how, 0.0)
    how |= {"kernel": tuple(kernel_shape), "ceil_mode": bool(ceil_mode), "divisor_override": 1}
    total = s.inner(f"avg_pool{n}d", power, **how)
    return s.emit("pow", total, s.const(np.float32(1 / p), "root"))
