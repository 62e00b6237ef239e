"""Builders of convolutions and pools over signals, images and volumes."""

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.frontends.common.moves import reshape
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import aten, operation
from bslite.frontends.torch.counting import filled
from bslite.frontends.torch.operands import converted, inner
from bslite.frontends.torch.ops.repeat import plain
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand


def each(value: Any, axes: int) -> Any:
    """torch's ``int[axes]``, one integer or one for each axis, as the latter; None for an empty list."""
    if isinstance(value, Sequence):
        return (tuple(value) * axes if len(value) == 1 else tuple(value)) or None
    return (value,) * axes


def window(s: Site, op: str, x: Operand, axes: int, sizes: dict[str, Any], **more: Any) -> Value:
    """A layer that moves a window over the last ``axes`` axes; ``sizes``: its attributes by axis."""
    attrs = {**more, **{name: each(value, axes) for name, value in sizes.items()}}
    if x.rank == axes + 1:  # a single image, without a batch
        one = reshape(s, x, (1, *x.shape), last=False)
        made: Value = reshape(s, s.emit(f"{op}{axes}d", one, inner=(1, *s.shape), **attrs), s.shape)
        return made
    if x.rank != axes + 2:
        raise Unsupported(f"of a tensor of rank {x.rank}")
    return s.emit(f"{op}{axes}d", x, **attrs)


def axes_of(s: Site) -> int:
    """2 for ``conv2d``."""
    return int(s.operation.partition("_with_")[0][-2])


@aten("conv1d", "conv2d", "conv3d")
def conv(
    s: Site, x: Operand, weight: Operand, bias: Operand | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Value:  # fmt: skip
    axes = weight.rank - 2
    if padding == "same":
        padding = same_padding(weight.shape[2:], each(dilation, axes))
    sizes = {"stride": stride, "padding": 0 if padding == "valid" else padding, "dilation": dilation}
    return window(s, "conv", x, axes, sizes, params={"weight": weight, "bias": bias}, groups=groups)


def same_padding(kernel: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """(top, left, bottom, right) that keep the size; the odd one goes to the bottom and to the right."""
    wide = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return (*(w // 2 for w in wide), *(w - w // 2 for w in wide))


@aten("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    s: Site, x: Operand, weight: Operand, bias: Operand | None = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Value:  # fmt: skip
    sizes = {"stride": stride, "padding": padding, "output_padding": output_padding, "dilation": dilation}
    params = {"weight": weight, "bias": bias}
    return window(s, "conv_transpose", x, weight.rank - 2, sizes, params=params, groups=groups)


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
    sizes = {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    if "_with_" not in s.operation or 1 not in s.used:
        return s.results(window(s, "max_pool", x, axes_of(s), sizes, ceil_mode=ceil_mode))
    taken = places(s, x, axes_of(s), **sizes)
    return [window(s, "max_pool", x, axes_of(s), sizes, ceil_mode=ceil_mode) if 0 in s.used else None, taken]


def places(s: Site, x: Operand, axes: int, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Value:
    """Where the largest element of each window is, as torch counts: along the last axes of ``x``, the last
    fastest. Of several NaN it is the first, where torch takes the last.
    """
    size, windows = x.shape[-axes:], s.shapes[1][-axes:]
    plain(*size, *windows)
    kernel, before, apart = (each(v, axes) for v in (kernel, padding, dilation))
    steps = each(stride, axes) or kernel
    images = x if x.rank == axes + 2 else reshape(s, x, (1, *x.shape), last=False)
    taps = s.emit(
        "max_pool_places", images, inner=(*images.shape[:2], *windows),
        kernel=kernel, stride=steps, before=before, dilation=apart, windows=windows,
    )  # fmt: skip

    def flat(*along: Any) -> Any:
        """Places in the image, from those along each axis."""
        lines = np.meshgrid(*along, indexing="ij")
        return sum(line * math.prod(size[a + 1 :]) for a, line in enumerate(lines))

    by_tap = flat(*(np.arange(k) * d for k, d in zip(kernel, apart, strict=True))).reshape(-1)
    first = flat(*(np.arange(w) * t - b for w, t, b in zip(windows, steps, before, strict=True)))
    off = s.emit("gather", s.const(by_tap, "taps"), converted(s, taps, "int64"), inner=taps.shape, axis=0)
    made: Value = reshape(s, inner(s, "add", off, s.const(first, "windows")), s.shapes[1], last=False)
    return made


@aten("max_unpool2d", "max_unpool3d")
def max_unpool(s: Site, x: Operand, indices: Operand, size: Any, *_: Any) -> Value:
    """Each element of the last axes at its place, of `places`; zeros elsewhere."""
    axes = len(size)
    plain(*size, *x.shape[-axes:])
    lead, count = s.shape[:-axes], math.prod(x.shape[-axes:])
    flat = (*lead, math.prod(size))
    found, put = (reshape(s, v, (*lead, count), last=False) for v in (x, indices))
    source: Any = s.node.args[1]
    of_pool = source.target is operator.getitem and "_with_indices" in operation(source.args[0])
    if not of_pool:  # -1 is no place, but an error
        none, beyond = (s.store.scalar(n, "int64") for n in (0, flat[-1]))
        put = s.emit("where", inner(s, "less", put, none), beyond, put, inner=put.shape)
    made = s.emit("scatter_elements", filled(s, flat, 0, x.dtype), put, found, inner=flat, axis=-1)
    whole: Value = reshape(s, made, s.shape)
    return whole


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    s: Site, x: Operand, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Value:  # fmt: skip
    sizes = {"kernel": kernel, "stride": stride, "padding": padding}
    return window(
        s, "avg_pool", x, axes_of(s), sizes,
        ceil_mode=ceil_mode, count_include_pad=count_include_pad, divisor_override=divisor_override,
    )  # fmt: skip


@aten("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
@aten("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive_avg_pool(s: Site, x: Operand, size: Any) -> Value:
    return window(s, "adaptive_avg_pool", x, axes_of(s), {"output_size": size})


@aten("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(s: Site, x: Operand, size: Any) -> Any:
    return s.results(window(s, "adaptive_max_pool", x, axes_of(s), {"output_size": size}))
