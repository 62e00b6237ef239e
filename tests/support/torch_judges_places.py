"""Picking, putting and resizing as torch computes them, or ONNX's reference where torch has no such mode."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from support.check import Array
from support.torch_judges import Tensor, oracle


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
