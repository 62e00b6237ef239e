"""Each op as torch computes it: op name -> a call on tensors. The tests' only use of torch as a judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F
from helpers import FLOAT64, Array, arguments, assert_three_way, rel_l2

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


def around(x: Tensor, padding: tuple[int, int, int, int], value: float = 0.0) -> Tensor:
    """(top, left, bottom, right) of ``value`` around an image: what torch's own ops cannot pad unevenly."""
    top, left, bottom, right = padding
    return F.pad(x, (left, right, top, bottom), value=value)


def even(padding: tuple[int, int, int, int]) -> bool:
    """Whether torch's (height, width) says it all."""
    return padding[:2] == padding[2:]


@oracle
def conv2d(x, *, weight, bias=None, stride, padding, dilation, groups):  # type: ignore[no-untyped-def]
    return F.conv2d(around(x, padding), weight, bias, stride, 0, dilation, groups)


@oracle
def max_pool2d(x, *, kernel, stride, padding, dilation, ceil_mode):  # type: ignore[no-untyped-def]
    if even(padding):
        return F.max_pool2d(x, kernel, stride, padding[:2], dilation, ceil_mode)
    assert not ceil_mode, "padding beforehand changes what ceil_mode means"
    return F.max_pool2d(around(x, padding, -np.inf), kernel, stride, 0, dilation)


@oracle
def avg_pool2d(x, *, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override):  # type: ignore[no-untyped-def]
    if even(padding):
        return F.avg_pool2d(x, kernel, stride, padding[:2], ceil_mode, count_include_pad, divisor_override)
    assert not ceil_mode, "padding beforehand changes what ceil_mode means"

    def total(x: Tensor, divisor: int | None = 1) -> Tensor:
        return F.avg_pool2d(around(x, padding), kernel, stride, divisor_override=divisor)

    if count_include_pad or divisor_override:
        return total(x, divisor_override)
    return total(x) / total(torch.ones_like(x))


@oracle
def adaptive_avg_pool2d(x, *, output_size):  # type: ignore[no-untyped-def]
    return F.adaptive_avg_pool2d(x, output_size)


@oracle
def adaptive_max_pool2d(x, *, output_size):  # type: ignore[no-untyped-def]
    return F.adaptive_max_pool2d(x, output_size)


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
def cast(x, *, to):  # type: ignore[no-untyped-def]
    return x.to(x.dtype if to == "float32" and x.is_floating_point() else getattr(torch, to))


@oracle
def gather(x, indices, *, axis):  # type: ignore[no-untyped-def]
    axis %= x.ndim
    rows = torch.index_select(x, axis, (indices % x.shape[axis]).reshape(-1))
    return rows.reshape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


ORACLE |= {
    "linear": F.linear,
    "matmul": torch.matmul,
    "layer_norm": lambda x, **kw: F.layer_norm(x, **kw),
    "group_norm": lambda x, **kw: F.group_norm(x, **kw),
    "lrn": lambda x, **kw: F.local_response_norm(x, **kw),
    "relu": F.relu,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "softmax": lambda x, axis: F.softmax(x, axis),
    "log_softmax": lambda x, axis: F.log_softmax(x, axis),
    "dropout": lambda x, p: F.dropout(x, p, training=False),
    "add": torch.add,
    "mul": torch.mul,
    "constant": lambda value: value,
    "concat": lambda *xs, axis: torch.cat(xs, axis),
    "flatten": lambda x, start_axis, end_axis: torch.flatten(x, start_axis, end_axis),
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
    return torch.topk(x, k, axis, largest).indices


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
