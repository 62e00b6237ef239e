"""Builders of convolutions and pools over signals, images and volumes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.integers import conv_of_scaled
from bslite.frontends.onnx.ops.moves import reshaped
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Operand, fixed, product

Ints = Sequence[int]


def spatial(kernel: Sequence[object]) -> int:
    """The number of axes a window moves along. Unsupported beyond three."""
    if not 1 <= len(kernel) <= 3:
        raise Unsupported(f"{len(kernel)}-dimensional")
    return len(kernel)


def windows(
    x: Operand, kernel: Ints, strides: Ints | None, pads: Ints | None, dilations: Ints | None, auto_pad: str
) -> dict[str, Any]:
    """The attributes stride, dilation and padding of a window, padding before each axis, then after."""
    n = len(kernel)
    if x.rank != n + 2:
        raise SpecError(f"its input has rank {x.rank}, expected {n + 2} for a window of {list(kernel)}")
    strides, dilations = strides or (1,) * n, dilations or (1,) * n
    if len(strides) != n or len(dilations) != n or (pads and len(pads) != 2 * n):
        raise SpecError(
            f"strides {list(strides)}, dilations {list(dilations)}, pads {pads} do not fit {n} axes"
        )
    if min((*kernel, *strides, *dilations)) < 1:
        raise SpecError(
            f"kernel {list(kernel)}, strides {list(strides)} or dilations {list(dilations)} below 1"
        )
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        before, after = [], []
        for size, k, stride, d in zip(x.shape[2:], kernel, strides, dilations, strict=True):
            if not isinstance(size, int):
                if stride != 1:
                    raise Varies(f"auto_pad={auto_pad} depends on free sizes")
                size = 1
            total = max(0, (-(-size // stride) - 1) * stride + d * (k - 1) + 1 - size)
            less, more = total // 2, total - total // 2
            before.append(less if auto_pad == "SAME_UPPER" else more)
            after.append(more if auto_pad == "SAME_UPPER" else less)
        pads = (*before, *after)
    elif auto_pad == "VALID":
        pads = (0,) * (2 * n)
    elif auto_pad != "NOTSET":
        raise SpecError(f"auto_pad is {auto_pad!r}")
    pads = tuple(pads or (0,) * (2 * n))
    if min(pads) < 0:
        raise SpecError(f"its pads {list(pads)} are negative")
    return {"stride": tuple(strides), "padding": pads, "dilation": tuple(dilations)}


def kernel_of(weight: Operand, kernel_shape: Ints | None) -> list[int]:
    """The kernel's sizes, those of the weight; SpecError if the attribute says otherwise."""
    kernel = [d for d in weight.shape[2:] if isinstance(d, int)]
    if kernel_shape is not None and list(kernel_shape) != kernel:
        raise SpecError(
            f"its kernel_shape {list(kernel_shape)} is not that of the weight {list(weight.shape)}"
        )
    return kernel


def is_wide(padding: Ints, kernel: Ints) -> bool:
    """Whether the padding is more than half the kernel somewhere, which the pools do not take."""
    return any(2 * p > k for p, k in zip(padding, (*kernel, *kernel), strict=True))


def padded(s: Site, x: Operand, kernel: Ints, how: dict[str, Any], value: float) -> Operand:
    """The input of a pool, around which, if its padding is wide, a layer puts ``value``: then none is left in
    ``how``.
    """
    n, padding = len(kernel), how["padding"]
    if not is_wide(padding, kernel):
        return x
    how["padding"] = (0,) * (2 * n)
    padded_x: Operand = s.inner("pad", x, pads=(0, 0, *padding[:n], 0, 0, *padding[n:]), value=value)
    return padded_x


@onnx_op("Conv")
def conv(
    s: Site, x: Operand, weight: Operand, bias: Operand | None = None, *, auto_pad: str,
    dilations: Ints | None, group: int, kernel_shape: Ints | None, pads: Ints | None, strides: Ints | None,
) -> Operand:  # fmt: skip
    kernel = kernel_of(weight, kernel_shape)
    how = windows(x, kernel, strides, pads, dilations, auto_pad)
    op = f"conv{spatial(kernel)}d"
    of_integers = conv_of_scaled(s, op, x, weight, bias, {"groups": group, **how})
    if of_integers is not None:
        return of_integers
    return s.emit(op, x, params={"weight": weight, "bias": bias}, groups=group, **how)


@onnx_op("ConvTranspose")
def conv_transpose(
    s: Site, x: Operand, weight: Operand, bias: Operand | None = None, *, auto_pad: str,
    dilations: Ints | None, group: int, kernel_shape: Ints | None, output_padding: Ints | None,
    output_shape: Ints | None, pads: Ints | None, strides: Ints | None,
) -> Operand:  # fmt: skip
    kernel = kernel_of(weight, kernel_shape)
    n, same = spatial(kernel), auto_pad in ("SAME_UPPER", "SAME_LOWER")
    how = windows(x, kernel, strides, pads, dilations, "NOTSET" if same else auto_pad)
    stride, dilation = how["stride"], how["dilation"]
    more = tuple(output_padding or (0,) * n)
    want: Ints | None = output_shape
    if len(more) != n or min(more) < 0 or (want is not None and len(want) != n):
        raise SpecError(f"output_padding {list(more)} or output_shape {want} does not fit {n} axes")
    if want is not None or same:
        sizes = [d if isinstance(d, int) else 0 for d in x.shape[2:]]
        if not all(sizes):
            raise Varies("its output_shape or auto_pad depends on free sizes")
        full = [
            st * (h - 1) + e + d * (k - 1) + 1
            for st, h, e, d, k in zip(stride, sizes, more, dilation, kernel, strict=True)
        ]
        want = want if want is not None else [h * st for h, st in zip(sizes, stride, strict=True)]
        total = [f - w for f, w in zip(full, want, strict=True)]
        more = tuple(e + max(0, -t) for e, t in zip(more, total, strict=True))
        less = [max(0, t) // 2 for t in total]
        rest = [max(0, t) - h for t, h in zip(total, less, strict=True)]
        how["padding"] = (*less, *rest) if auto_pad == "SAME_UPPER" else (*rest, *less)
    params = {"weight": weight, "bias": bias}
    return s.emit(f"conv_transpose{n}d", x, params=params, output_padding=more, groups=group, **how)


@onnx_op("MaxPool")
def max_pool(
    s: Site, x: Operand, *, auto_pad: str, ceil_mode: int = 0, dilations: Ints | None = None,
    kernel_shape: Ints, pads: Ints | None, storage_order: int = 0, strides: Ints | None,
) -> Operand:  # fmt: skip
    s.used_only(0)
    how = windows(x, kernel_shape, strides, pads, dilations, auto_pad)
    op = f"max_pool{spatial(kernel_shape)}d"
    x = padded(s, x, kernel_shape, how, -math.inf)
    return s.emit(op, x, kernel=tuple(kernel_shape), ceil_mode=bool(ceil_mode), **how)


@onnx_op("AveragePool")
def avg_pool(
    s: Site, x: Operand, *, auto_pad: str, ceil_mode: int = 0, count_include_pad: int = 0,
    dilations: Ints | None = None, kernel_shape: Ints, pads: Ints | None, strides: Ints | None,
) -> Operand:  # fmt: skip
    how = windows(x, kernel_shape, strides, pads, dilations, auto_pad)
    how |= {"ceil_mode": bool(ceil_mode), "count_include_pad": bool(count_include_pad)}
    if is_wide(how["padding"], kernel_shape):
        return avg_by_conv(s, x, tuple(kernel_shape), **how)
    return s.emit(f"avg_pool{spatial(kernel_shape)}d", x, kernel=tuple(kernel_shape), **how)


@onnx_op("GlobalAveragePool", "GlobalMaxPool")
def global_pool(s: Site, x: Operand) -> Operand:
    op = "adaptive_avg_pool2d" if s.op_type == "GlobalAveragePool" else "adaptive_max_pool2d"
    if x.rank < 3:
        raise SpecError(f"its input {list(x.shape)} has no image")
    if x.rank == 4:
        return s.emit(op, x, output_size=1)
    image = reshaped(s, x, (*x.shape[:2], product(x.shape[2:]), 1), last=False)
    return reshaped(s, s.inner(op, image, output_size=1), (*x.shape[:2], *(1,) * (x.rank - 2)))


def avg_by_conv(
    s: Site, x: Operand, kernel: tuple[int, ...], *, stride: tuple[int, ...], padding: tuple[int, ...],
    dilation: tuple[int, ...], ceil_mode: bool, count_include_pad: bool,
) -> Operand:  # fmt: skip
    """An average pool of a form that the op lacks: sums by a convolution with ones, over the counts.

    Each channel is an image of its own, ``[N*C, 1, ...]``.
    """
    n = spatial(kernel)
    sizes = [fixed(d, "its image") for d in x.shape[2:]]
    counts = np.ones((1, 1, *(1,) * n), np.float32)
    ends = list(padding[n:])
    for i, (size, k, st, d) in enumerate(zip(sizes, kernel, stride, dilation, strict=True)):
        before, reach = padding[i], d * (k - 1) + 1
        room = size + before + ends[i] - reach
        if room < 0:
            raise SpecError(f"its window is larger than the image {sizes} with its padding")
        out = (-(-room // st) if ceil_mode else room // st) + 1
        if ceil_mode and (out - 1) * st >= size + before:
            out -= 1
        first, last = (0, size + before + ends[i]) if count_include_pad else (before, before + size)
        taps = np.arange(out)[:, None] * st + np.arange(k)[None] * d
        inside = ((taps >= first) & (taps < last)).sum(1).astype(np.float32)
        counts = counts * inside.reshape(*(1,) * (i + 2), out, *(1,) * (n - i - 1))
        ends[i] = max(ends[i], (out - 1) * st + reach - size - before)
    planes = reshaped(s, x, (product(x.shape[:2]), 1, *sizes), last=False)
    ones = s.const(np.ones((1, 1, *kernel), np.float32), "ones")
    sums = s.inner(
        f"conv{n}d", planes, params={"weight": ones}, stride=stride, padding=(*padding[:n], *ends),
        dilation=dilation,
    )  # fmt: skip
    images = reshaped(s, sums, (*x.shape[:2], *sums.shape[2:]), last=False)
    return s.emit("div", images, s.const(counts, "counts"))
