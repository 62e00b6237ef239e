"""Each op as torch computes it: op name -> a call on tensors, with parameters and attributes by name.

`bslite.cli.peer.model` computes whole models with it; the tests hold the reference against it op by op. An op
that torch only has in roundabout ways (LSTM with lengths, ONNX's resize) is none of torch's here.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from bslite.errors import UnsupportedError
from bslite.ops import REGISTRY, Kind

Tensor = torch.Tensor
Ints = tuple[int, ...]
TORCH_OPS: dict[str, Callable[..., Tensor]] = {}


def torch_op(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Register ``function`` for the op it is named after."""
    TORCH_OPS[function.__name__.rstrip("_")] = function
    return function


def sided(pads: Ints) -> list[int]:
    """``pads``, all starts then all ends of the last axes, in the order of `torch.nn.functional.pad`."""
    axes = len(pads) // 2
    return [side for axis in reversed(range(axes)) for side in (pads[axis], pads[axis + axes])]


def padded(x: Tensor, pads: Ints, value: float = 0.0) -> tuple[Tensor, Ints]:
    """``x`` and the padding left to do: torch's own ops pad both ends of an axis alike or not at all."""
    axes = len(pads) // 2
    if pads[:axes] == pads[axes:]:
        return x, pads[:axes]
    return F.pad(x, sided(pads), value=value), (0,) * axes


def conv(
    x: Tensor, *, weight: Tensor, bias: Tensor | None = None, stride: Ints, padding: Ints, dilation: Ints,
    groups: int,
) -> Tensor:  # fmt: skip
    function: Any = (F.conv1d, F.conv2d, F.conv3d)[len(stride) - 1]
    x, pads = padded(x, padding)
    return function(x, weight, bias, stride, pads, dilation, groups)


def conv_transpose(
    x: Tensor, *, weight: Tensor, bias: Tensor | None = None, stride: Ints, padding: Ints,
    output_padding: Ints, dilation: Ints, groups: int,
) -> Tensor:  # fmt: skip
    axes = len(stride)
    function: Any = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[axes - 1]
    even = padding[:axes] == padding[axes:]
    pads = padding[:axes] if even else (0,) * axes
    y: Tensor = function(x, weight, bias, stride, pads, output_padding, groups, dilation)
    for axis in range(0 if even else axes):
        y = y.narrow(2 + axis, padding[axis], y.shape[2 + axis] - padding[axis] - padding[axes + axis])
    return y


def max_pool(
    x: Tensor, *, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool
) -> Tensor:
    function: Any = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(kernel) - 1]
    wide, pads = padded(x, padding, -math.inf)
    if ceil_mode and wide is not x:
        raise UnsupportedError("torch has no max pooling with asymmetric padding and ceil_mode")
    return function(wide, kernel, stride, pads, dilation, ceil_mode)


def avg_pool(
    x: Tensor, *, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> Tensor:  # fmt: skip
    axes = len(kernel)
    even = padding[:axes] == padding[axes:]
    if ceil_mode and (set(dilation) != {1} or not even):
        raise UnsupportedError("torch has no average pooling with ceil_mode and dilation or uneven padding")
    if set(dilation) != {1}:  # torch has none: a convolution with ones
        filters = torch.ones(x.shape[1], 1, *kernel, dtype=x.dtype)
        taps = {"stride": stride or kernel, "padding": padding, "dilation": dilation, "groups": x.shape[1]}
        counted = (
            torch.tensor(math.prod(kernel), dtype=x.dtype)
            if count_include_pad
            else conv(torch.ones_like(x), weight=filters, **taps)  # type: ignore[arg-type]
        )
        return conv(x, weight=filters, **taps) / (divisor_override or counted)  # type: ignore[arg-type]
    if axes == 1:  # torch has no divisor there: as an image of one row
        flat = avg_pool(
            x[:, :, None], kernel=(1, *kernel), stride=(1, *stride) if stride else stride,
            padding=(0, padding[0], 0, padding[1]), ceil_mode=ceil_mode, dilation=(1, *dilation),
            count_include_pad=count_include_pad, divisor_override=divisor_override,
        )  # fmt: skip
        return flat[:, :, 0]
    function: Any = (F.avg_pool2d, F.avg_pool3d)[axes - 2]
    if even:
        return function(x, kernel, stride, padding[:axes], ceil_mode, count_include_pad, divisor_override)
    if count_include_pad or divisor_override:
        return function(padded(x, padding)[0], kernel, stride, divisor_override=divisor_override)
    sums, counts = (
        function(padded(a, padding)[0], kernel, stride, divisor_override=1) for a in (x, torch.ones_like(x))
    )
    return sums / counts


def adaptive_pool(kind: str, x: Tensor, *, output_size: Sequence[int | None]) -> Tensor:
    """``output_size`` leaves open where the input's own size stays."""
    sizes = [size or own for size, own in zip(output_size, x.shape[2:], strict=True)]
    return getattr(F, f"adaptive_{kind}_pool{len(sizes)}d")(x, sizes)


for axes in (1, 2, 3):
    TORCH_OPS |= {
        f"{family.__name__}{axes}d": family for family in (conv, conv_transpose, max_pool, avg_pool)
    }
    TORCH_OPS |= {f"adaptive_{kind}_pool{axes}d": partial(adaptive_pool, kind) for kind in ("avg", "max")}


def given(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function with weight and bias as inputs."""
    return lambda x, weight, bias=None, **attrs: function(x, weight=weight, bias=bias, **attrs)


for axes in (1, 2, 3):
    TORCH_OPS |= {f"conv{axes}d_given": given(conv), f"conv_transpose{axes}d_given": given(conv_transpose)}


@torch_op
def batch_norm(
    x: Tensor, *, running_mean: Tensor, running_var: Tensor, weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float,
) -> Tensor:  # fmt: skip
    return F.batch_norm(x, running_mean, running_var, weight, bias, eps=eps)


@torch_op
def pad(x: Tensor, *, pads: Ints, value: float, mode: str) -> Tensor:
    if mode == "constant":
        return F.pad(x, sided(pads), value=value)
    mode = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}[mode]
    y = x.double()  # torch pads no integers so; the last axis of three only, for any rank
    for axis in range(x.ndim):
        before, after = pads[axis], pads[axis + x.ndim]
        around, cut = (max(before, 0), max(after, 0)), (max(-before, 0), max(-after, 0))
        line = y.movedim(axis, -1)
        wide = F.pad(line.reshape(1, -1, x.shape[axis]), around, mode)
        wide = wide[..., cut[0] : wide.shape[-1] - cut[1]]
        y = wide.reshape(*line.shape[:-1], -1).movedim(-1, axis)
    return y.to(x.dtype)


@torch_op
def reshape(x: Tensor, *, shape: Ints) -> Tensor:
    axes = [i if d == 0 else -2 - d for i, d in enumerate(shape)]
    return x.reshape([x.shape[axis] if axis >= 0 else d for axis, d in zip(axes, shape, strict=True)])


@torch_op
def slice_(x: Tensor, *, axis: int, start: int, stop: int | None, step: int) -> Tensor:
    chosen = slice(start, stop, step)
    if step > 0:
        return x[(slice(None),) * (axis % x.ndim) + (chosen,)]
    return x.index_select(axis, torch.tensor(range(x.shape[axis])[chosen]))  # torch has no negative steps


@torch_op
def trilu(x: Tensor, *, upper: bool, diagonal: int) -> Tensor:
    return (torch.triu if upper else torch.tril)(x, diagonal)


@torch_op
def upsample(x: Tensor, *, mode: str, size: Any, scale: Any, align_corners: bool) -> Tensor:
    corners = align_corners if mode == "bilinear" else None
    return F.interpolate(x, size, scale, mode, corners, recompute_scale_factor=False)


@torch_op
def hardsigmoid(x: Tensor, *, alpha: float, beta: float) -> Tensor:
    return F.hardsigmoid(x) if (alpha, beta) == (1 / 6, 0.5) else torch.clamp(alpha * x + beta, 0, 1)


@torch_op
def shrink(x: Tensor, *, lambd: float, bias: float) -> Tensor:
    if bias in (0, lambd):
        return F.hardshrink(x, lambd) if bias == 0 else F.softshrink(x, lambd)
    moved = torch.where(x > lambd, x - bias, torch.where(x < -lambd, x + bias, 0))
    return torch.where(x.isnan(), x, moved)


def _axes(x: Tensor, axes: Sequence[int]) -> Ints:
    return tuple(axes) or tuple(range(x.ndim))


@torch_op
def prod(x: Tensor, *, axes: Ints, keepdim: bool) -> Tensor:
    for axis in sorted((a % x.ndim for a in _axes(x, axes)), reverse=True):
        x = x.prod(axis, keepdim, dtype=x.dtype)
    return x


@torch_op
def argmax(x: Tensor, *, axis: int | None, keepdim: bool, last: bool) -> Tensor:
    if axis is None and keepdim:
        return argmax(x, axis=None, keepdim=False, last=last).reshape((1,) * x.ndim)
    if not last:
        return torch.argmax(x, axis, keepdim)
    size = x.numel() if axis is None else x.shape[axis]
    return size - 1 - torch.argmax(x.flip(axis), axis, keepdim)  # type: ignore[arg-type]


def _cumulated(function: Any, first: float, x: Tensor, axis: int, exclusive: bool, reverse: bool) -> Tensor:
    x = x.flip(axis) if reverse else x
    y: Tensor = function(x, axis, dtype=x.dtype)
    if exclusive:
        start = torch.full_like(y.narrow(axis, 0, 1), first)
        y = torch.cat([start, y.narrow(axis, 0, y.shape[axis] - 1)], axis)
    return y.flip(axis) if reverse else y


@torch_op
def fourier(
    x: Tensor, window: Tensor | None = None, *, axis: int, length: int, source: str, inverse: bool,
    onesided: bool, real: bool, scale: float,
) -> Tensor:  # fmt: skip
    axis %= x.ndim
    z = x if source == "real" else torch.view_as_complex(x.contiguous())
    if window is not None:
        z = z * window.reshape([-1 if i == axis else 1 for i in range(z.ndim)])
    if source == "half":
        y = torch.fft.irfft(z, length, axis, norm="forward") if inverse else torch.fft.hfft(z, length, axis)
        return y * scale
    if onesided:
        y = torch.fft.rfft(z, length, axis)
        y = y.conj() if inverse else y
    elif inverse:
        y = torch.fft.ifft(z, length, axis, norm="forward")
    else:
        y = torch.fft.fft(z, length, axis)
    y = y * scale
    return y.real if real else torch.view_as_real(y.resolve_conj())


@torch_op
def complex_mul(x: Tensor, y: Tensor, *, conj: bool) -> Tensor:
    a, b = (torch.view_as_complex(z.contiguous()) for z in (x, y))
    return torch.view_as_real(a * (b.conj() if conj else b)).clone()


@torch_op
def cast(x: Tensor, *, to: str) -> Tensor:
    return x.to(x.dtype if to == "float32" and x.is_floating_point() else getattr(torch, to))


@torch_op
def gather(x: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    axis %= x.ndim
    rows = torch.index_select(x, axis, (indices % x.shape[axis]).reshape(-1))
    return rows.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def _first(second: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """``y`` where it is the ``second`` that is chosen, or NaN; else ``x``, which has all of the gradient."""
    return torch.where(second | y.isnan(), y, x)


@torch_op
def binary_cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    """torch's takes nothing but probabilities."""
    if all(bool(((v >= 0) & (v <= 1)).all()) for v in (x, target)):
        return F.binary_cross_entropy(x, target.expand_as(x), reduction="none")
    return (target - 1) * torch.log1p(-x).clamp(-100) - target * torch.log(x).clamp(-100)


def _extreme(
    shared: Callable[..., Tensor], along: Callable[..., Any], x: Tensor, *,
    axes: tuple[int, ...], keepdim: bool, first: bool,
) -> Tensor:  # fmt: skip
    """By the function that gives equals equal shares of its gradient, or the one that gives all to the first,
    in row-major order of the axes.
    """
    reduced = sorted(axis % x.ndim for axis in _axes(x, axes))
    if not first:
        return shared(x, reduced, keepdim)
    ends = list(range(-len(reduced), 0))
    values: Tensor = along(x.movedim(reduced, ends).flatten(-len(reduced)), -1)[0]
    if keepdim:
        for axis in reduced:
            values = values.unsqueeze(axis)
    return values


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of every channel."""
    columns = x.transpose(0, 1).flatten(1)
    return columns.mean(1), columns.var(1, correction=0)


def per_channel(numbers: Tensor, x: Tensor) -> Tensor:
    """Numbers ``[C]`` in the shape that broadcasts over ``x``, ``[N, C, ...]``."""
    return numbers.reshape(-1, *(1,) * (x.ndim - 2))


def _batch_norm(
    x: Tensor,
    stats: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float,
    own: bool,
) -> Tensor:
    """torch's own has no gradient by the statistics; ``own`` ones have that of numbers made of x."""
    if own:
        n, away = x.numel() // x.shape[1], x - per_channel(stats[0].detach(), x)
        made = torch.stack([v.transpose(0, 1).flatten(1).sum(1) / n for v in (away, away * away)])
        stats = stats.detach() + torch.nan_to_num(made - made.detach(), 0.0, 0.0, 0.0)
    scale = torch.rsqrt(stats[1] + eps) * (1 if weight is None else weight)
    shift = -stats[0] * scale + (0 if bias is None else bias)
    return x * per_channel(scale, x) + per_channel(shift, x)


TORCH_OPS |= {
    "sum": lambda x, axes, keepdim: x.sum(_axes(x, axes), keepdim, dtype=x.dtype),
    "mean": lambda x, axes, keepdim: x.mean(_axes(x, axes), keepdim),
    "amax": lambda x, **kw: _extreme(torch.amax, torch.max, x, **kw),
    "amin": lambda x, **kw: _extreme(torch.amin, torch.min, x, **kw),
    "sum_square": lambda x, axes, keepdim: (x * x).sum(_axes(x, axes), keepdim),
    "l1_norm": lambda x, axes, keepdim: torch.linalg.vector_norm(x, 1, _axes(x, axes), keepdim),
    "l2_norm": lambda x, axes, keepdim: torch.linalg.vector_norm(x, 2, _axes(x, axes), keepdim),
    "log_sum": lambda x, axes, keepdim: x.sum(_axes(x, axes), keepdim).log(),
    "logsumexp": lambda x, axes, keepdim: torch.logsumexp(x, _axes(x, axes), keepdim),
    "var": lambda x, axes, **kw: torch.var(x, _axes(x, axes), **kw),
    "std": lambda x, axes, **kw: torch.std(x, _axes(x, axes), **kw),
    "argmin": lambda x, **kw: argmax(-x, **kw),
    "cumsum": lambda x, **kw: _cumulated(torch.cumsum, 0, x, **kw),
    "cumprod": lambda x, **kw: _cumulated(torch.cumprod, 1, x, **kw),
    "logcumsumexp": lambda x, axis: torch.logcumsumexp(x, axis),
    "linear": F.linear,
    "linear_given": F.linear,
    "matmul": torch.matmul,
    "layer_norm": F.layer_norm,
    "rms_norm": F.rms_norm,
    "normalize": lambda x, axis, eps: F.normalize(x, 2.0, axis, eps),
    "group_norm": F.group_norm,
    "lrn": F.local_response_norm,
    "batch_stats": lambda x: torch.stack(_moments(x)),
    "batch_norm_given": _batch_norm,
    "scale_shift": lambda x, scale, shift: x * per_channel(scale, x) + per_channel(shift, x),
    "silu": lambda x, beta: F.silu(x) if beta == 1 else x * torch.sigmoid(beta * x),
    "clamp": lambda x, low, high, flat: (F.hardtanh if flat else torch.clamp)(x, low, high),
    "quantize": lambda x, scale, low: torch.clamp(torch.round(x / scale), low, low + 255),
    "selu": lambda x, alpha, gamma: gamma * F.elu(x, alpha),
    "softmax": lambda x, axis: F.softmax(x, axis),
    "log_softmax": lambda x, axis: F.log_softmax(x, axis),
    "dropout": lambda x, p: x,
    "stop_gradient": lambda x: x.detach(),
    "maximum": lambda x, y, first: _first(y > x, x, y) if first else torch.maximum(x, y),
    "minimum": lambda x, y, first: _first(y < x, x, y) if first else torch.minimum(x, y),
    "div": lambda x, y: torch.div(x, y, rounding_mode=None if x.is_floating_point() else "trunc"),
    "floor_div": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "equal": torch.eq,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": torch.bitwise_not,
    "isinf": lambda x, negative, positive: (torch.isneginf(x) & negative) | (torch.isposinf(x) & positive),
    "prelu": lambda x, y: torch.where(x > 0, x, x * y),
    "constant": lambda value: value,
    "concat": lambda *xs, axis: torch.cat(xs, axis),
    "flatten": lambda x, start_axis, end_axis: torch.flatten(x, start_axis, end_axis),
    "repeat_batch": lambda x, like: x.expand(len(like), *x.shape[1:]),
    "permute": lambda x, order: x.permute(order),
    "expand": lambda x, shape: x.expand(torch.broadcast_shapes(x.shape, [abs(d) for d in shape])),
    "tile": lambda x, repeats: x.repeat(repeats),
    "roll": lambda x, shifts, axes: torch.roll(x, shifts, axes) if axes else x,
}

for _op in REGISTRY.values():  # a pointwise function that torch has by the same name and attributes
    _function = getattr(torch, _op.torch_name, None) or getattr(F, _op.torch_name, None)
    if _op.kind is Kind.POINTWISE and _function is not None:
        TORCH_OPS.setdefault(_op.name, _function)
