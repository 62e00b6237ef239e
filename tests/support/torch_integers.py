"""Products of integers as torch computes them, in cells of pairs and quads: op name -> a call on tensors."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from bslite.cli.peer.ops import TORCH_OPS

Tensor = torch.Tensor


def pairs(x, scale=None, zero=None, *, axis, groups):  # type: ignore[no-untyped-def]
    if scale is not None:
        x = (x / scale).round().clamp(-zero, 255 - zero)
    whole = x.round().nan_to_num(nan=-(2.0**15)).clamp(-(2**15), 2**15 - 1).to(torch.int16).movedim(axis, -1)
    parts = whole.unflatten(-1, (groups, -1))
    parts = F.pad(parts, (0, parts.shape[-1] % 2)).contiguous()
    return parts.view(torch.int32).flatten(-2).movedim(-1, axis).contiguous()


def quads(x, *, axis, groups, least):  # type: ignore[no-untyped-def]
    whole = (x.round().nan_to_num(nan=least) - least).clamp(0, 255).to(torch.uint8).movedim(axis, -1)
    parts = whole.unflatten(-1, (groups, -1))
    parts = F.pad(parts, (0, -parts.shape[-1] % 4)).contiguous()
    return parts.view(torch.int32).flatten(-2).movedim(-1, axis).contiguous()


def unpaired(y: Tensor, form: str, axis: int, channels: int, groups: int = 1) -> Tensor:
    """The numbers of pairs or quads in float64, which holds the sums of their products."""
    kind = torch.int16 if form == "pairs" else torch.uint8
    parts = y.movedim(axis, -1).unflatten(-1, (groups, -1)).contiguous().view(kind)
    return parts[..., : channels // groups].flatten(-2).movedim(-1, axis).double()


def finished(
    total, axis, precision, residual, factor, offset, scale, shift, to, first, own, other, second, under
):  # type: ignore[no-untyped-def]
    sizes = [-1 if i == axis % total.ndim else 1 for i in range(total.ndim)]
    if offset is not None:
        total = total + offset.double().reshape(sizes)
    whole = total.to(torch.int64).to(torch.int32)  # wraps around
    if to == "int32":
        return whole
    t = whole.to(precision)
    factors = [p.reshape(sizes) if p.ndim else p for p in (scale, factor) if p is not None]
    t = t if not factors else t * (factors[0] if len(factors) == 1 else factors[0] * factors[1])
    t = t if shift is None else t + shift.reshape(sizes)

    def rounded(t: Tensor, low: float, high: float, step: float, least: float) -> Tensor:
        t = t.clamp(low, high)
        return (t / step).round().clamp(least, least + 255) if step else t

    t = rounded(t, *first)
    t = t * own if own else t
    t = t if residual is None else t + (residual + under).to(precision) * other
    t = rounded(t, *second)
    if to == "quads":
        return quads(t, axis=axis, groups=1, least=(second if second[2] else first)[3])
    return pairs(t, axis=axis, groups=1) if to == "pairs" else t


def precision_of(*numbers: Tensor | None) -> torch.dtype:
    """float32 or float64, whichever the parameters are in."""
    return next((n.dtype for n in numbers if n is not None), torch.float64)


def int_conv(  # type: ignore[no-untyped-def]
    x,
    residual=None,
    *,
    weight,
    offset=None,
    scale=None,
    shift=None,
    stride,
    padding,
    dilation,
    groups,
    reads,
    adds,
    **finish,
):
    numbers = unpaired(x, reads, 1, weight.shape[1] * groups, groups)
    total = TORCH_OPS["conv2d"](
        numbers, weight=weight.double(), stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    residual = None if residual is None else unpaired(residual, adds, 1, weight.shape[0])
    return finished(total, 1, precision_of(scale, shift), residual, None, offset, scale, shift, **finish)


def int_linear(x, factor=None, *, weight, offset=None, scale=None, shift=None, reads, adds, **finish):  # type: ignore[no-untyped-def]
    total = unpaired(x, reads, -1, weight.shape[1]) @ weight.double().T
    precision = precision_of(factor, scale, shift)
    return finished(total, -1, precision, None, factor, offset, scale, shift, **finish)


INTEGERS: dict[str, Callable[..., Tensor]] = {
    "pairs": pairs, "quads": quads, "int_linear": int_linear,
    **dict.fromkeys(("int_conv1d", "int_conv2d", "int_conv3d"), int_conv),
}  # fmt: skip
