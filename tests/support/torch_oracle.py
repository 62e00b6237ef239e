"""Each op as torch computes it: op name -> a call on tensors. The tests' only use of torch as a judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from bslite.ops import Case, Op
from bslite.reference import call
from bslite.reference.executor import in_precision
from support import torch_judges_places, torch_judges_recurrent
from support.check import FLOAT64, Array, arguments, assert_three_way, rel_l2
from support.torch_judges import ORACLE, Tensor, oracle

assert torch_judges_places
assert torch_judges_recurrent  # imported, they register theirs


def torch_output(
    op: type[Op],
    inputs: Sequence[Array],
    params: Mapping[str, Array],
    attrs: Mapping[str, Any],
    dtype: npt.DTypeLike = np.float64,
) -> Array:
    """The op's output by torch in ``dtype``; ``attrs`` parsed."""

    def tensor(x: Array) -> Tensor:
        return torch.from_numpy(np.array(in_precision(x, dtype)))

    with torch.no_grad():
        y = ORACLE[op.name](*map(tensor, inputs), **{r: tensor(p) for r, p in params.items()}, **attrs)
    return in_precision(y.numpy(), dtype)


def check_reference(op: type[Op], case: Case, seed: int = 0) -> None:
    """The reference's function agrees with torch on ``case``: in float64, and three-way in float32."""
    inputs, params, attrs = arguments(op, case, seed)
    exact = call(op.name, inputs, params, attrs, np.float64)
    declared = op.dtype([x.dtype.name for x in inputs], {r: p.dtype.name for r, p in params.items()}, attrs)
    assert exact.dtype == (np.float64 if declared == "float32" else declared), f"{op.name} made {exact.dtype}"
    wide = torch_output(op, inputs, params, attrs)
    error = rel_l2(exact, wide) if declared == "float32" else float(not np.array_equal(exact, wide))
    assert error <= FLOAT64, f"relative error {error:.3g} against torch in float64"
    peer = torch_output(op, inputs, params, attrs, np.float32)
    assert_three_way(call(op.name, inputs, params, attrs, np.float32), peer, exact)


def around(x: Tensor, padding: tuple[int, ...], value: float = 0.0) -> Tensor:
    """(top, left, bottom, right) of ``value`` around an image: what torch's own ops cannot pad unevenly."""
    axes = len(padding) // 2
    sides = [side for axis in reversed(range(axes)) for side in (padding[axis], padding[axis + axes])]
    return F.pad(x, sides, value=value)


def even(padding: tuple[int, ...]) -> bool:
    """Whether torch's (height, width) says it all."""
    axes = len(padding) // 2
    return padding[:axes] == padding[axes:]


def conv(x, *, weight, bias=None, stride, padding, dilation, groups):  # type: ignore[no-untyped-def]
    function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[len(stride)]
    return function(around(x, padding), weight, bias, stride, 0, dilation, groups)


def conv_transpose(x, *, weight, bias=None, stride, padding, output_padding, dilation, groups):  # type: ignore[no-untyped-def]
    axes = len(stride)
    function = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}[axes]
    if even(padding):
        return function(x, weight, bias, stride, padding[:axes], output_padding, groups, dilation)
    y = function(x, weight, bias, stride, 0, output_padding, groups, dilation)
    for axis in range(axes):
        y = y.narrow(2 + axis, padding[axis], y.shape[2 + axis] - padding[axis] - padding[axes + axis])
    return y


def max_pool(x, *, kernel, stride, padding, dilation, ceil_mode):  # type: ignore[no-untyped-def]
    axes = len(kernel)
    function = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[axes]
    if even(padding):
        return function(x, kernel, stride, padding[:axes], dilation, ceil_mode)
    assert not ceil_mode, "padding beforehand changes what ceil_mode means"
    return function(around(x, padding, -np.inf), kernel, stride, 0, dilation)


def avg_pool(x, *, kernel, stride, padding, dilation, ceil_mode, count_include_pad, divisor_override):  # type: ignore[no-untyped-def]
    axes = len(kernel)
    if set(dilation) != {1}:  # torch has none: a convolution with ones
        assert not ceil_mode
        function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[axes]
        filters = torch.ones(x.shape[1], 1, *kernel, dtype=x.dtype)

        def sums(x: Tensor) -> Tensor:
            return function(around(x, padding), filters, None, stride or kernel, 0, dilation, x.shape[1])

        counted = np.prod(kernel) if count_include_pad else sums(torch.ones_like(x))
        return sums(x) / (divisor_override or counted)
    if axes == 1:  # torch has no divisor there: as an image of one row
        stride, divided = (1, *stride) if stride else None, divisor_override
        wide = (0, *padding[:1], 0, *padding[1:])
        flat = avg_pool(
            x[:, :, None], kernel=(1, *kernel), stride=stride, padding=wide, ceil_mode=ceil_mode,
            dilation=(1, *dilation), count_include_pad=count_include_pad, divisor_override=divided,
        )  # fmt: skip
        return flat[:, :, 0]
    function = {2: F.avg_pool2d, 3: F.avg_pool3d}[axes]
    if even(padding):
        return function(x, kernel, stride, padding[:axes], ceil_mode, count_include_pad, divisor_override)
    assert not ceil_mode, "padding beforehand changes what ceil_mode means"

    def total(x: Tensor, divisor: int | None = 1) -> Tensor:
        return function(around(x, padding), kernel, stride, divisor_override=divisor)

    if count_include_pad or divisor_override:
        return total(x, divisor_override)
    return total(x) / total(torch.ones_like(x))


def adaptive_avg_pool(x, *, output_size):  # type: ignore[no-untyped-def]
    axes = len(output_size)
    size = [s or h for s, h in zip(output_size, x.shape[2:], strict=True)]
    return {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}[axes](x, size)


def adaptive_max_pool(x, *, output_size):  # type: ignore[no-untyped-def]
    axes = len(output_size)
    size = [s or h for s, h in zip(output_size, x.shape[2:], strict=True)]
    return {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}[axes](x, size)


for family in (conv, conv_transpose, max_pool, avg_pool, adaptive_avg_pool, adaptive_max_pool):
    ORACLE |= {f"{family.__name__}{axes}d": family for axes in (1, 2, 3)}


@oracle
def batch_norm(x, *, running_mean, running_var, weight=None, bias=None, eps):  # type: ignore[no-untyped-def]
    return F.batch_norm(x, running_mean, running_var, weight, bias, eps=eps)


@oracle
def pad(x, *, pads, value, mode):  # type: ignore[no-untyped-def]
    rank = x.ndim
    pairs = [side for axis in reversed(range(rank)) for side in (pads[axis], pads[axis + rank])]
    if mode == "constant":
        return F.pad(x, pairs, value=value)
    mode = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}[mode]
    y = x.double()  # torch pads no integers so; the last axis of three only, for any rank
    for axis in range(rank):
        before, after = pads[axis], pads[axis + rank]
        around, cut = (max(before, 0), max(after, 0)), (max(-before, 0), max(-after, 0))
        line = y.movedim(axis, -1)
        wide = F.pad(line.reshape(1, -1, x.shape[axis]), around, mode)
        wide = wide[..., cut[0] : wide.shape[-1] - cut[1]]
        y = wide.reshape(*line.shape[:-1], -1).movedim(-1, axis)
    return y.to(x.dtype)


@oracle
def reshape(x, *, shape):  # type: ignore[no-untyped-def]
    return x.reshape([x.shape[i] if d == 0 else d for i, d in enumerate(shape)])


@oracle
def slice_(x, *, axis, start, stop, step):  # type: ignore[no-untyped-def]
    kept = range(x.shape[axis])[slice(start, stop, step)]  # torch has no negative steps
    return x.index_select(axis, torch.tensor(list(kept)))


@oracle
def trilu(x, *, upper, diagonal):  # type: ignore[no-untyped-def]
    return (torch.triu if upper else torch.tril)(x, diagonal)


@oracle
def upsample(x, *, mode, size, scale, align_corners):  # type: ignore[no-untyped-def]
    corners = align_corners if mode == "bilinear" else None
    return F.interpolate(x, size, scale, mode, corners, recompute_scale_factor=False)


@oracle
def hardsigmoid(x, *, alpha, beta):  # type: ignore[no-untyped-def]
    return F.hardsigmoid(x) if (alpha, beta) == (1 / 6, 0.5) else torch.clamp(alpha * x + beta, 0, 1)


@oracle
def shrink(x, *, lambd, bias):  # type: ignore[no-untyped-def]
    if bias in (0, lambd):
        return F.hardshrink(x, lambd) if bias == 0 else F.softshrink(x, lambd)
    moved = torch.where(x > lambd, x - bias, torch.where(x < -lambd, x + bias, 0))
    return torch.where(x.isnan(), x, moved)


#: Ops of one value, and of two, that torch has under the same name.
UNARY = (
    *("neg", "abs", "sign", "sqrt", "rsqrt", "reciprocal", "exp", "expm1", "log", "log2", "log10", "log1p"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf"),
    *("floor", "ceil", "round", "trunc"),
)
BINARY = (
    *("add", "mul", "sub", "pow", "maximum", "minimum", "fmod", "remainder", "atan2"),
    *("not_equal", "less", "less_equal", "greater", "greater_equal", "isnan", "where"),
)
ORACLE |= {name: getattr(torch, name) for name in (*UNARY, *BINARY)}


def _axes(x: Tensor, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(axes) or tuple(range(x.ndim))


@oracle
def prod(x, *, axes, keepdim):  # type: ignore[no-untyped-def]
    for axis in sorted((a % x.ndim for a in _axes(x, axes)), reverse=True):
        x = x.prod(axis, keepdim, dtype=x.dtype)
    return x


@oracle
def argmax(x, *, axis, keepdim, last):  # type: ignore[no-untyped-def]
    if axis is None and keepdim:
        return argmax(x, axis=None, keepdim=False, last=last).reshape((1,) * x.ndim)
    if not last:
        return torch.argmax(x, axis, keepdim)
    size = x.numel() if axis is None else x.shape[axis]
    return size - 1 - torch.argmax(x.flip(axis), axis, keepdim)


def cumulated(function, first, x, axis, exclusive, reverse):  # type: ignore[no-untyped-def]
    x = x.flip(axis) if reverse else x
    y = function(x, axis, dtype=x.dtype)
    if exclusive:
        start = torch.full_like(y.narrow(axis, 0, 1), first)
        y = torch.cat([start, y.narrow(axis, 0, y.shape[axis] - 1)], axis)
    return y.flip(axis) if reverse else y


@oracle
def cumsum(x, **attrs):  # type: ignore[no-untyped-def]
    return cumulated(torch.cumsum, 0, x, **attrs)


@oracle
def cumprod(x, **attrs):  # type: ignore[no-untyped-def]
    return cumulated(torch.cumprod, 1, x, **attrs)


@oracle
def logcumsumexp(x, *, axis):  # type: ignore[no-untyped-def]
    return torch.logcumsumexp(x, axis)


ORACLE |= {
    "sum": lambda x, axes, keepdim: x.sum(_axes(x, axes), keepdim, dtype=x.dtype),
    "mean": lambda x, axes, keepdim: x.mean(_axes(x, axes), keepdim),
    "amax": lambda x, axes, keepdim: x.amax(_axes(x, axes), keepdim),
    "amin": lambda x, axes, keepdim: x.amin(_axes(x, axes), keepdim),
    "sum_square": lambda x, axes, keepdim: (x * x).sum(_axes(x, axes), keepdim),
    "l1_norm": lambda x, axes, keepdim: torch.linalg.vector_norm(x, 1, _axes(x, axes), keepdim),
    "l2_norm": lambda x, axes, keepdim: torch.linalg.vector_norm(x, 2, _axes(x, axes), keepdim),
    "log_sum": lambda x, axes, keepdim: x.sum(_axes(x, axes), keepdim).log(),
    "logsumexp": lambda x, axes, keepdim: torch.logsumexp(x, _axes(x, axes), keepdim),
    "var": lambda x, axes, keepdim, correction: torch.var(
        x, _axes(x, axes), correction=correction, keepdim=keepdim
    ),
    "std": lambda x, axes, keepdim, correction: torch.std(
        x, _axes(x, axes), correction=correction, keepdim=keepdim
    ),
    "argmin": lambda x, **kw: argmax(-x, **kw),
}


@oracle
def cast(x, *, to):  # type: ignore[no-untyped-def]
    return x.to(x.dtype if to == "float32" and x.is_floating_point() else getattr(torch, to))


@oracle
def gather(x, indices, *, axis):  # type: ignore[no-untyped-def]
    axis %= x.ndim
    rows = torch.index_select(x, axis, (indices % x.shape[axis]).reshape(-1))
    return rows.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


@oracle
def attention(q, k, v, mask=None, *, scale, is_causal, grouped, no_key):  # type: ignore[no-untyped-def]
    if no_key == "zero" and not (is_causal and mask is not None):
        with sdpa_kernel(SDPBackend.MATH):  # others leave keys out, with what NaN among them does
            return F.scaled_dot_product_attention(
                q, k, v, mask, is_causal=is_causal, scale=scale, enable_gqa=grouped
            )
    assert not grouped
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = scores + torch.full_like(scores, -np.inf).triu(1)
    weights = (scores if mask is None else scores + mask).softmax(-1)
    return weights @ v


ORACLE |= {
    "linear": F.linear,
    "matmul": torch.matmul,
    "layer_norm": lambda x, **kw: F.layer_norm(x, **kw),
    "rms_norm": lambda x, **kw: F.rms_norm(x, **kw),
    "normalize": lambda x, axis, eps: F.normalize(x, 2.0, axis, eps),
    "group_norm": lambda x, **kw: F.group_norm(x, **kw),
    "lrn": lambda x, **kw: F.local_response_norm(x, **kw),
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "silu": lambda x, beta: F.silu(x) if beta == 1 else x * torch.sigmoid(beta * x),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardswish": F.hardswish,
    "clamp": lambda x, low, high: torch.clamp(x, low, high),
    "selu": lambda x, alpha, gamma: gamma * F.elu(x, alpha),
    "celu": lambda x, alpha: F.celu(x, alpha),
    "softplus": lambda x, beta, threshold: F.softplus(x, beta, threshold),
    "softsign": F.softsign,
    "mish": F.mish,
    "logsigmoid": F.logsigmoid,
    "threshold": lambda x, threshold, value: F.threshold(x, threshold, value),
    "softmax": lambda x, axis: F.softmax(x, axis),
    "log_softmax": lambda x, axis: F.log_softmax(x, axis),
    "dropout": lambda x, p: F.dropout(x, p, training=False),
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
