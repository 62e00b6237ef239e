"""Builders of grid_sample, affine_grid, unfold and fold."""

import math
from collections.abc import Sequence
from typing import Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.common.moves import reshape
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand

MODES = ("linear", "nearest", "cubic")  # in the order of torch's numbers
PADDINGS = ("zeros", "border", "reflection")


@aten("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(s: Site, x: Operand, grid: Operand, mode: int, padding: int, align_corners: bool) -> Value:
    return s.emit(
        "grid_sample", x, grid, mode=MODES[mode], padding=PADDINGS[padding], align_corners=align_corners
    )


@aten("affine_grid_generator")
def affine_grid(s: Site, theta: Operand, size: Sequence[Any], align_corners: bool) -> Operand:
    """``[x, y, 1] @ theta^T`` for the centres of all elements, x fastest; ``[x, y, z, 1]`` in volumes."""
    torch = load_torch()
    n, sizes = theta.shape[0], tuple(size[2:])
    if not all(isinstance(d, int) for d in sizes):
        raise Varies("its size depends on the batch")
    lines = []
    for d in sizes:
        line = torch.linspace(-1, 1, d) if d > 1 else torch.zeros(1)
        lines.append(line if align_corners else line * ((d - 1) / d))
    axes = torch.meshgrid(*lines, indexing="ij")
    base = torch.stack([*axes[::-1], torch.ones(sizes)], -1).reshape(-1, len(sizes) + 1)
    turned = s.emit("permute", theta, inner=(n, theta.shape[2], theta.shape[1]), order=(0, 2, 1))
    count = math.prod(sizes)
    made = s.emit("matmul", s.derived("base", base), turned, inner=(n, count, len(sizes)))
    return reshape(s, made, (n, *sizes, len(sizes)))


@aten("im2col")
def im2col(s: Site, x: Operand, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    if len(x.shape) != 4:
        raise Unsupported("of a single image without a batch axis")
    return s.emit("unfold", x, kernel=kernel, stride=stride, padding=tuple(padding), dilation=dilation)


@aten("col2im")
def col2im(s: Site, x: Operand, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    if len(x.shape) != 3:
        raise Unsupported("to a single image without a batch axis")
    return s.emit(
        "fold", x,
        output_size=size, kernel=kernel, stride=stride, padding=(*padding, *padding), dilation=dilation,
    )  # fmt: skip
