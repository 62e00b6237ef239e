"""Each op as torch computes it: op name -> a call on tensors. The tests' only use of torch as a judge."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from helpers import FLOAT64, Array, arguments, assert_three_way, rel_l2
from torch.nn.attention import SDPBackend, sdpa_kernel

from bslite.ops import Case, Op
from bslite.reference import call
from bslite.reference.executor import in_precision

Tensor = torch.Tensor
ORACLE: dict[str, Callable[..., Tensor]] = {}


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


def oracle(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Register ``function`` for the op it is named after."""
    ORACLE[function.__name__.rstrip("_")] = function
    return function


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


@oracle
def cumsum(x, *, axis, exclusive, reverse):  # type: ignore[no-untyped-def]
    x = x.flip(axis) if reverse else x
    y = torch.cumsum(x, axis, dtype=x.dtype)
    if exclusive:
        y = torch.cat([torch.zeros_like(y.narrow(axis, 0, 1)), y.narrow(axis, 0, y.shape[axis] - 1)], axis)
    return y.flip(axis) if reverse else y


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


def recurrent(kind, x, *rest, reverse, initial_state, lengths, **params):  # type: ignore[no-untyped-def]
    """By torch's own module, sequence by sequence: cut to its length, turned round if need be."""
    steps, batch, _ = x.shape
    found = rest[-1] if lengths else torch.full((batch,), steps)
    hidden, hr = params["weight_hh"].shape[0] // {"LSTM": 4, "GRU": 3}.get(kind, 1), params.get("weight_hr")
    extra = {"nonlinearity": params.pop("activation")} if kind == "RNN" else {}
    if hr is not None:
        extra["proj_size"] = hr.shape[0]
    net = getattr(torch.nn, kind)(x.shape[2], hidden, bias=params.get("bias_ih") is not None, **extra).to(
        x.dtype
    )
    net.load_state_dict({f"{role}_l0": p for role, p in params.items() if p is not None})
    out = x.new_zeros(steps + 1 + (kind == "LSTM"), batch, hidden)
    for n, length in enumerate(found.tolist()):
        own = x[:length, n].flip(0) if reverse else x[:length, n]
        state = [s[n : n + 1] for s in rest[: len(rest) - lengths]] if initial_state else None
        if kind != "LSTM" and state:
            state = state[0]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")
            y, last = net(own, state)
        out[:length, n, : y.shape[1]] = y.flip(0) if reverse else y
        for i, s in enumerate(last if kind == "LSTM" else [last]):
            out[steps + i, n, : s.shape[1]] = s[0]
    return out


@oracle
def lstm(*xs, peephole=None, **given):  # type: ignore[no-untyped-def]
    if peephole is None:
        return recurrent("LSTM", *xs, **given)
    return with_peepholes(*xs, peephole=peephole, **given)


def with_peepholes(x, *, weight_ih, weight_hh, bias_ih, bias_hh, peephole, **ends):  # type: ignore[no-untyped-def]
    """torch has none: its cell's equations written out, for the plain case."""
    assert not any(ends.values())
    h = c = x.new_zeros(x.shape[1], weight_hh.shape[1])
    p, made = peephole.chunk(3), []
    for now in x:
        i, f, g, o = (F.linear(now, weight_ih, bias_ih) + F.linear(h, weight_hh, bias_hh)).chunk(4, 1)
        c = torch.sigmoid(f + p[1] * c) * c + torch.sigmoid(i + p[0] * c) * torch.tanh(g)
        h = torch.sigmoid(o + p[2] * c) * torch.tanh(c)
        made.append(h)
    return torch.stack([*made, h, c])


@oracle
def gru(*xs, reset_after, **given):  # type: ignore[no-untyped-def]
    if reset_after:
        return recurrent("GRU", *xs, **given)
    return reset_before(*xs, **given)


def reset_before(x, *rest, weight_ih, weight_hh, bias_ih, bias_hh, reverse, initial_state, lengths):  # type: ignore[no-untyped-def]
    """torch has none: sequence by sequence, the equations written out."""
    steps, batch, _ = x.shape
    hidden, found = weight_hh.shape[1], rest[-1] if lengths else torch.full((batch,), steps)
    out = x.new_zeros(steps + 1, batch, hidden)
    for n, length in enumerate(found.tolist()):
        h = rest[0][n] if initial_state else x.new_zeros(hidden)
        for t in range(length)[:: -1 if reverse else 1]:
            r, z, new = F.linear(x[t, n], weight_ih, bias_ih).chunk(3)
            (wr, wz, wn), (br, bz, bn) = weight_hh.chunk(3), bias_hh.chunk(3)
            r, z = torch.sigmoid(r + F.linear(h, wr, br)), torch.sigmoid(z + F.linear(h, wz, bz))
            h = (1 - z) * torch.tanh(new + F.linear(r * h, wn, bn)) + z * h
            out[t, n] = h
        out[steps, n] = h
    return out


@oracle
def rnn(*xs, **given):  # type: ignore[no-untyped-def]
    return recurrent("RNN", *xs, **given)


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


@oracle
def gather_elements(x, indices, *, axis):  # type: ignore[no-untyped-def]
    return torch.gather(x, axis, indices % x.shape[axis])


def rows_at(x: Tensor, indices: Tensor, batch: int) -> Tensor:
    """Which row of x, seen as rows of the slices that the last axis of ``indices`` names."""
    row = torch.zeros(indices.shape[:-1], dtype=torch.int64)
    for d in range(batch):
        own = torch.arange(x.shape[d]).reshape([-1 if a == d else 1 for a in range(row.ndim)])
        row = row * x.shape[d] + own
    for d in range(indices.shape[-1]):
        row = row * x.shape[batch + d] + indices[..., d] % x.shape[batch + d]
    return row


@oracle
def gather_nd(x, indices, *, batch_dims):  # type: ignore[no-untyped-def]
    depth = batch_dims + indices.shape[-1]
    return x.reshape(-1, *x.shape[depth:])[rows_at(x, indices, batch_dims)]


TORCH_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@oracle
def scatter_elements(x, indices, updates, *, axis, reduction):  # type: ignore[no-untyped-def]
    indices = indices % x.shape[axis]
    if reduction == "none":
        return x.scatter(axis, indices, updates)
    return x.scatter_reduce(axis, indices, updates, TORCH_REDUCTIONS[reduction])


@oracle
def scatter_nd(x, indices, updates, *, reduction):  # type: ignore[no-untyped-def]
    rows, depth = rows_at(x, indices, 0).reshape(-1), indices.shape[-1]
    wide = x.reshape(int(np.prod(x.shape[:depth])), -1)
    updates = updates.reshape(len(rows), -1)
    places = rows[:, None].expand_as(updates)
    y = scatter_elements(wide, places, updates, axis=0, reduction=reduction)
    return y.reshape(x.shape)


@oracle
def topk(x, *, k, axis, largest):  # type: ignore[no-untyped-def]
    # Of equals the first; torch.topk takes any.
    order = torch.sort(x, dim=axis, descending=largest, stable=True).indices
    return order.narrow(axis, 0, k)


@oracle
def one_hot(x, *, depth, axis, on, off, to, strict):  # type: ignore[no-untyped-def]
    hot = F.one_hot(torch.where(x < 0, x + depth, x).clip(-1, depth - 1) % (depth + 1), depth + 1)[..., :-1]
    made = torch.float64 if to == "float32" else getattr(torch, to)
    return torch.where(hot.bool(), on, off).to(made).movedim(-1, axis)


@oracle
def resize(x, *, mode, axes, sizes, scales, coordinates, rounding, cubic_a, **options):  # type: ignore[no-untyped-def]
    """torch where it has the rule, else ONNX's reference evaluator, which is no judge of infinities."""
    plain = cubic_a == -0.75 and not any(options.values()) and axes == tuple(range(2, x.ndim))
    corners = coordinates == "align_corners"
    if mode != "nearest" and plain and (coordinates == "half_pixel" or (corners and sizes)):
        named = {3: "linear", 4: "bilinear", 5: "trilinear"}[x.ndim] if mode == "linear" else "bicubic"
        return F.interpolate(
            x, sizes, scales, named, align_corners=corners, recompute_scale_factor=False
        )  # fmt: skip
    if not bool(torch.isfinite(x).all()):
        pytest.skip("torch has no such mode to say where NaN and Inf go")
    return torch.from_numpy(
        onnx_resize(
            x.numpy(), axes, sizes, scales, mode=mode, coordinate_transformation_mode=coordinates,
            nearest_mode=rounding, cubic_coeff_a=cubic_a, **options,
        )
    )  # fmt: skip


def onnx_resize(x: Array, axes: Any, sizes: Any, scales: Any, **options: Any) -> Array:
    """ONNX's definition, by its reference evaluator, kept from rounding cubic weights to float32."""
    import onnx.reference
    from onnx import helper as h
    from onnx.reference.ops import op_resize

    def wide(function: Any) -> Any:
        return lambda ratio, scale, A: function(ratio, scale, float(A))

    cubic = ("_cubic_coeffs", "_cubic_coeffs_antialias")

    renamed = {"extrapolation": "extrapolation_value"}
    given = {renamed.get(k, k): int(v) if v is True or v is False else v for k, v in options.items()}
    roi = given.pop("roi")
    inputs = {"x": x}
    for name, value, dtype in (("roi", roi, x.dtype), ("scales", scales, np.float32), ("sizes", sizes, int)):
        if value is not None:
            inputs[name] = np.array(value, dtype)
    names = [name if name in inputs else "" for name in ("x", "roi", "scales", "sizes")]
    node = h.make_node("Resize", names, ["y"], axes=list(axes), **given)
    arrays = {**inputs, "y": x}
    *kinds, y = (
        h.make_tensor_value_info(n, h.np_dtype_to_tensor_dtype(v.dtype), [None] * v.ndim)
        for n, v in arrays.items()
    )
    model = h.make_model(h.make_graph([node], "resize", kinds, [y]))
    with mock.patch.multiple(op_resize, **{name: wide(getattr(op_resize, name)) for name in cubic}):
        (made,) = onnx.reference.ReferenceEvaluator(model).run(None, inputs)
    return np.asarray(made, x.dtype)
