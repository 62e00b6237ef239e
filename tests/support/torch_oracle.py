"""Each op as torch computes it: op name -> a call on tensors. The tests' only use of torch as a judge."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from bslite.cli.peer.ops import TORCH_OPS, per_channel
from bslite.ops import Case, Op
from bslite.reference import call
from bslite.reference.executor import in_precision
from support.check import FLOAT64, Array, arguments, assert_three_way, rel_l2
from support.torch_integers import INTEGERS
from support.torch_loops import LOOPS
from support.torch_recurrent import RECURRENT

Tensor = torch.Tensor
ORACLE: dict[str, Callable[..., Tensor]] = {**TORCH_OPS, **INTEGERS, **LOOPS, **RECURRENT}


def oracle(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Register ``function`` for the op it is named after."""
    ORACLE[function.__name__.rstrip("_")] = function
    return function


def torch_output(
    op: Op,
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


def check_reference(op: Op, case: Case, seed: int = 0) -> None:
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


@oracle
def grouped_linear(x: Tensor, ends: Tensor, *, weight: Tensor) -> Tensor:
    """Each row by the first group that ends behind it."""
    group = (ends[:, None].int() <= torch.arange(len(x))).cummin(0).values.sum(0)
    made = torch.einsum("tc,tkc->tk", x, weight[group.clamp(max=len(weight) - 1)])
    return torch.where(group[:, None] < len(weight), made, 0)


@oracle
def block_linear(
    x: Tensor, *, weight: Tensor, scale: Tensor, zero: Any = None, bias: Any = None, bits: int
) -> Tensor:
    """Number by number: the place of each in its byte, and of its block."""
    place = torch.arange(x.shape[-1])
    each = 8 // bits
    block = weight.shape[2] * each
    codes = weight.flatten(1)[:, place // each] >> (place % each * bits) & (2**bits - 1)
    middle = 2.0 ** (bits - 1) if zero is None else zero[:, place // block]
    return torch.nn.functional.linear(x, (codes.to(x.dtype) - middle) * scale[:, place // block], bias)


@oracle
def attention(q, k, v, *others, scale, is_causal, grouped, no_key, dropped):  # type: ignore[no-untyped-def]
    mask = others[0] if len(others) > dropped else None
    if dropped:
        if grouped:
            k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape, dtype=q.dtype).masked_fill(~mask, -np.inf)
        math = torch.ops.aten._scaled_dot_product_attention_math
        return math(q, k, v, mask, 0.0, is_causal, scale=scale)[1] * others[-1] @ v
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


@oracle
def attention_grad(q, k, v, grad, *others, grouped, by_mask, **attrs):  # type: ignore[no-untyped-def]
    """Of copies for each matrix: torch's gradients by q, k, v and what is added to the scores."""
    if grouped:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    with torch.enable_grad():
        q, k, v = (x.expand(*grad.shape[:-2], *x.shape[-2:]) for x in (q, k, v))
        by = [q, k, v]
        if by_mask:
            by += [others[0].expand(*grad.shape[:-1], k.shape[-2])]
        asked = any(x.requires_grad for x in (*by, grad))
        if not asked:
            by = [x.clone().requires_grad_() for x in by]
        y = attention(*by, *others[by_mask:], grouped=False, **attrs)
        made = torch.autograd.grad(y, by, grad, create_graph=asked)
    return torch.cat([x.flatten(len(grad.shape) - 2) for x in made], -1)


@oracle
def activation_grad(grad, x, *, of):  # type: ignore[no-untyped-def]
    if of == "hardswish":  # torch's own, of NaN, depends on where in memory it is
        return torch.where(x < -3, 0, torch.where(x >= 3, grad, grad * (x / 3 + 0.5)))
    with torch.enable_grad():
        at = x if x.requires_grad else x.detach().requires_grad_()
        y = F.gelu(at, approximate="tanh") if of == "gelu_tanh" else getattr(F, of)(at)
        (made,) = torch.autograd.grad(y, at, grad, create_graph=x.requires_grad)
    return made


def before(grad, x, name, scale, shift):  # type: ignore[no-untyped-def]
    return (
        grad
        if name == "identity"
        else activation_grad(grad, TORCH_OPS["scale_shift"](x, scale, shift), of=name)
    )


@oracle
def batch_sums(grad, x, stats, scale=None, shift=None, *, through):  # type: ignore[no-untyped-def]
    grad = before(grad, x, through, scale, shift)
    both = grad, grad * (x - per_channel(stats[0], x))
    return torch.stack([v.transpose(0, 1).flatten(1).sum(1) for v in both])


@oracle
def batch_norm_grad(grad, x, stats, sums, scale, shift=None, *, eps, through):  # type: ignore[no-untyped-def]
    grad, n = before(grad, x, through, scale, shift), x.numel() // x.shape[1]
    away = (x - per_channel(stats[0], x)) / per_channel(stats[1] + eps, x)
    return per_channel(scale, x) * (grad - per_channel(sums[0], x) / n - away * per_channel(sums[1], x) / n)


def conv_grad_weight(x, grad, *, kernel, stride, before, dilation, groups):  # type: ignore[no-untyped-def]
    """What torch's own convolution gives as gradient of its weight, on an image with its zeros."""
    convolve = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[len(kernel)]
    ends = zip(x.shape[2:], kernel, stride, before, dilation, grad.shape[2:], strict=True)
    behind = [(p - 1) * s + (r - 1) * d + 1 - b - h for h, r, s, b, d, p in ends]  # below 0: no window
    x = F.pad(x, [n for sides in reversed(list(zip(before, behind, strict=True))) for n in sides])
    with torch.enable_grad():
        weight = torch.zeros(grad.shape[1], x.shape[1] // groups, *kernel, dtype=x.dtype, requires_grad=True)
        made = convolve(x, weight, stride=stride, dilation=dilation, groups=groups)
        (by_weight,) = torch.autograd.grad(made, weight, grad, create_graph=x.requires_grad)
    return by_weight


def met(x, kernel, stride, before, dilation, windows, fill):  # type: ignore[no-untyped-def]
    """What the taps of all windows meet, ``[taps, N, C, windows]``, with ``fill`` around x."""
    ends = zip(x.shape[2:], kernel, stride, before, dilation, windows, strict=True)
    after = [max(0, (m - 1) * s + (k - 1) * d + 1 - b - h) for h, k, s, b, d, m in ends]
    x = F.pad(x, [n for b, a in reversed(list(zip(before, after, strict=True))) for n in (b, a)], value=fill)
    found = []
    for tap in itertools.product(*map(range, kernel)):
        cuts = zip(tap, stride, dilation, windows, strict=True)
        found.append(x[(..., *(slice(k * d, k * d + (m - 1) * s + 1, s) for k, s, d, m in cuts))])
    return torch.stack(found)


@oracle
def max_pool_places(x, *, kernel, stride, before, dilation, windows):  # type: ignore[no-untyped-def]
    seen = met(x, kernel, stride, before, dilation, windows, 0.0)
    inside = met(torch.ones_like(x), kernel, stride, before, dilation, windows, 0.0) > 0
    most = torch.finfo(x.dtype).max  # between NaN, the largest, and what lies outside
    rank = torch.where(seen.isnan(), torch.inf, seen.clamp(-most, most))
    return torch.where(inside, rank, -torch.inf).argmax(0)


@oracle
def pool_grad(grad, places=None, *, kernel, stride, before, dilation, size):  # type: ignore[no-untyped-def]
    with torch.enable_grad():
        x = torch.zeros(*grad.shape[:2], *size, dtype=grad.dtype, requires_grad=True)
        seen = met(x, kernel, stride, before, dilation, grad.shape[2:], 0.0)
        seeds = grad.expand(seen.shape)
        if places is not None:
            numbers = torch.arange(len(seen)).reshape(-1, *(1,) * grad.ndim)
            seeds = torch.where(places == numbers, seeds, 0)
        (made,) = torch.autograd.grad(seen, x, seeds)
    return made


ORACLE |= {f"conv{axes}d_grad_weight": conv_grad_weight for axes in (1, 2, 3)}


# -- picking, putting, resizing; by ONNX where torch has no such mode ------------------------------


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
def grid_sample(x, grid, *, mode, padding, align_corners):  # type: ignore[no-untyped-def]
    named = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}[mode]
    return F.grid_sample(x, grid, named, padding, align_corners)


@oracle
def unfold(x, *, kernel, stride, padding, dilation):  # type: ignore[no-untyped-def]
    top, left, bottom, right = padding
    wide = F.pad(x.double(), (left, right, top, bottom))  # torch unfolds no integers
    return F.unfold(wide, kernel, dilation, 0, stride).to(x.dtype)


@oracle
def fold(x, *, output_size, kernel, stride, padding, dilation):  # type: ignore[no-untyped-def]
    """torch's own for images padded evenly; else what carries the windows' gradient back to the image."""
    axes = len(kernel)
    if axes == 2 and padding[:2] == padding[2:]:
        return F.fold(x, output_size, kernel, dilation, padding[:2], stride)
    with torch.enable_grad():
        image = torch.zeros(len(x), x.shape[1] // int(np.prod(kernel)), *output_size, dtype=x.dtype)
        image.requires_grad_()
        wide = F.pad(image, [p for d in reversed(range(axes)) for p in (padding[d], padding[d + axes])])
        for d, (k, s, apart) in enumerate(zip(kernel, stride, dilation, strict=True)):
            wide = wide.unfold(2 + d, apart * (k - 1) + 1, s)[..., ::apart]
        order = (0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes))
        columns = wide.permute(order)
        (made,) = torch.autograd.grad(columns, image, x.reshape(columns.shape))
    return made


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
    made, how = x.numpy(), {"mode": mode, "nearest_mode": rounding, "cubic_coeff_a": cubic_a, **options}
    if coordinates != "pytorch_half_pixel":
        how["coordinate_transformation_mode"] = coordinates
        return torch.from_numpy(onnx_resize(made, axes, sizes, scales, **how))
    for axis, size in zip(axes, sizes, strict=True):  # ONNX's evaluator takes -1/2 for the one pixel, not 0
        how["coordinate_transformation_mode"] = "asymmetric" if size == 1 else "half_pixel"
        made = onnx_resize(made, (axis,), (size,), None, **how)
    return torch.from_numpy(made)


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
