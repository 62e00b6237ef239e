"""Builders of what moves a window over signals, images and volumes: convolutions and pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand

Sizes = tuple[int, ...]


def each(value: Any, axes: int) -> Any:
    """torch's ``int[axes]``: one integer, or one for each axis."""
    if isinstance(value, Sequence):
        return tuple(value) * axes if len(value) == 1 else tuple(value)
    return (value,) * axes


def batched(x: Operand, axes: int) -> None:
    """Raise unless ``x`` has a batch axis before its channels; torch also takes a single image."""
    if len(x.shape) != axes + 2:
        raise Unsupported(f"of a tensor of rank {len(x.shape)}, without a batch")


def axes_of(s: Site) -> int:
    """2 for ``conv2d``."""
    return int(s.operation.partition("_with_")[0][-2])


@aten("conv1d", "conv2d", "conv3d")
def conv(
    s: Site, x: Operand, weight: Operand, bias: Operand | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Value:  # fmt: skip
    axes = len(weight.shape) - 2
    batched(x, axes)
    if padding == "same":
        pads = same_padding(weight.shape[2:], each(dilation, axes))
    else:
        pads = each(0 if padding == "valid" else padding, axes)
    return s.emit(
        f"conv{axes}d",
        x,
        params={"weight": weight, "bias": bias},
        stride=each(stride, axes),
        padding=pads,
        dilation=each(dilation, axes),
        groups=groups,
    )


def same_padding(kernel: Sequence[int], dilation: Sizes) -> Sizes:
    """(top, left, bottom, right) that keep the size; the odd one goes to the bottom and to the right."""
    wide = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return (*(w // 2 for w in wide), *(w - w // 2 for w in wide))


@aten("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    s: Site, x: Operand, weight: Operand, bias: Operand | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Value:  # fmt: skip
    axes = len(weight.shape) - 2
    batched(x, axes)
    return s.emit(
        f"conv_transpose{axes}d",
        x,
        params={"weight": weight, "bias": bias},
        stride=each(stride, axes),
        padding=each(padding, axes),
        output_padding=each(output_padding, axes),
        dilation=each(dilation, axes),
        groups=groups,
    )


@aten("convolution", "_convolution")
def convolution(
    s: Site, x: Operand, weight: Operand, bias: Operand | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, *_: Any,
) -> Value:  # fmt: skip
    if transposed:
        return conv_transpose(s, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return conv(s, x, weight, bias, stride, list(padding), dilation, groups)


@aten("max_pool1d", "max_pool2d", "max_pool3d")
@aten("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(
    s: Site, x: Operand, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:  # fmt: skip
    axes = axes_of(s)
    batched(x, axes)
    y = s.emit(
        f"max_pool{axes}d",
        x,
        kernel=each(kernel, axes),
        stride=each(stride, axes) if stride else None,
        padding=each(padding, axes),
        dilation=each(dilation, axes),
        ceil_mode=ceil_mode,
    )
    return s.results(y)


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    s: Site, x: Operand, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Value:  # fmt: skip
    axes = axes_of(s)
    batched(x, axes)
    return s.emit(
        f"avg_pool{axes}d",
        x,
        kernel=each(kernel, axes),
        stride=each(stride, axes) if stride else None,
        padding=each(padding, axes),
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        divisor_override=divisor_override,
    )


@aten("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
@aten("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive_avg_pool(s: Site, x: Operand, size: Any) -> Value:
    axes = axes_of(s)
    batched(x, axes)
    return s.emit(f"adaptive_avg_pool{axes}d", x, output_size=each(size, axes))


@aten("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(s: Site, x: Operand, size: Any) -> Any:
    axes = axes_of(s)
    batched(x, axes)
    return s.results(s.emit(f"adaptive_max_pool{axes}d", x, output_size=each(size, axes)))
