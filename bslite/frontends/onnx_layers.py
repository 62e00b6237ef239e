"""Builders of layers with parameters, windows, norms and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.onnx_context import Site, onnx_op
from bslite.frontends.onnx_moves import axis_of, permuted, reshaped
from bslite.frontends.onnx_values import Const, Dims, Operand, Unsupported, Value, Varies, fixed, product

Ints = Sequence[int]


def windows(
    x: Operand, kernel: Ints, strides: Ints | None, pads: Ints | None, dilations: Ints | None, auto_pad: str
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Strides, dilations and pads of a window, written out: pads before each axis, then after."""
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
    return tuple(strides), tuple(dilations), pads


@onnx_op("Conv")
def conv(
    s: Site,
    x: Operand,
    weight: Operand,
    bias: Operand | None = None,
    *,
    auto_pad: str,
    dilations: Ints | None,
    group: int,
    kernel_shape: Ints | None,
    pads: Ints | None,
    strides: Ints | None,
) -> Operand:
    kernel = weight.shape[2:]
    if kernel_shape is not None and tuple(kernel_shape) != tuple(kernel):
        raise SpecError(
            f"its kernel_shape {list(kernel_shape)} is not that of the weight {list(weight.shape)}"
        )
    sizes = [d for d in kernel if isinstance(d, int)]
    stride, dilation, padding = windows(x, sizes, strides, pads, dilations, auto_pad)
    if len(kernel) != 2:
        raise Unsupported(f"{len(kernel)}-dimensional")
    return s.emit(
        "conv2d", x, params={"weight": weight, "bias": bias},
        stride=stride, padding=padding, dilation=dilation, groups=group,
    )  # fmt: skip


@onnx_op("Gemm")
def gemm(
    s: Site,
    a: Operand,
    b: Operand,
    c: Operand | None = None,
    *,
    alpha: float,
    beta: float,
    transA: int,
    transB: int,
    **_: Any,
) -> Operand:
    if a.rank != 2 or b.rank != 2:
        raise SpecError(f"it takes two matrices, got {list(a.shape)} and {list(b.shape)}")
    x = permuted(s, a, (1, 0), last=False) if transA else a
    columns = b.shape[0 if transB else 1]
    if isinstance(b, Const) and (c is None or (isinstance(c, Const) and c.shape == (columns,))):
        weight, bias = b, c
        if not transB or alpha != 1:
            matrix = b.array if transB else b.array.T
            weight = s.const(scaled(np.ascontiguousarray(matrix), alpha), "weight")
        if isinstance(c, Const) and beta != 1:
            bias = s.const(scaled(c.array, beta), "bias")
        return s.emit("linear", x, params={"weight": weight, "bias": bias})
    y = permuted(s, b, (1, 0), last=False) if transB else b
    plain = c is None and alpha == 1
    product_ = (s.emit if plain else s.inner)("matmul", x, y)
    if alpha != 1:
        product_ = (s.emit if c is None else s.inner)("mul", product_, s.const(np.float32(alpha), "alpha"))
    if c is None:
        return product_
    if beta != 1:
        c = s.inner("mul", c, s.const(np.float32(beta), "beta"))
    return s.emit("add", product_, c)


def scaled(array: Any, factor: float) -> Any:
    """``array`` times a number, rounded once."""
    return array if factor == 1 else (array.astype(np.float64) * factor).astype(array.dtype)


@onnx_op("MatMul")
def matmul(s: Site, a: Operand, b: Operand) -> Operand:
    if min(a.rank, b.rank) < 1:
        raise SpecError("it takes no numbers")
    if isinstance(b, Const) and b.rank == 2 and isinstance(a, Value) and a.rank > 1:
        return s.emit("linear", a, params={"weight": s.const(np.ascontiguousarray(b.array.T), "weight")})
    if a.rank > 1 and b.rank > 1:
        return s.emit("matmul", a, b)
    x = reshaped(s, a, (1, *a.shape), last=False) if a.rank == 1 else a
    y = reshaped(s, b, (*b.shape, 1), last=False) if b.rank == 1 else b
    made = s.inner("matmul", x, y)
    shape = made.shape
    shape = shape[:-1] if b.rank == 1 else shape
    shape = (*shape[: x.rank - 2], *shape[x.rank - 1 :]) if a.rank == 1 else shape
    return reshaped(s, made, tuple(shape))


@onnx_op("BatchNormalization")
def batch_norm(
    s: Site,
    x: Operand,
    scale: Operand,
    bias: Operand,
    mean: Operand,
    var: Operand,
    *,
    epsilon: float,
    momentum: float,
    spatial: int = 1,
    training_mode: int = 0,
) -> Operand:
    if training_mode or not spatial:
        raise Unsupported(f"with training_mode={training_mode}, spatial={spatial}")
    s.used_only(0)
    params = {"weight": scale, "bias": bias, "running_mean": mean, "running_var": var}
    return s.emit("batch_norm", x, params=params, eps=epsilon)


def affine(s: Site, op: str, x: Operand, scale: Operand, bias: Operand | None, **attrs: Any) -> Operand:
    """A norm with its scale and bias: parameters if they are known, else layers of their own."""
    known = [not isinstance(v, Value) for v in (scale, bias)]
    if all(known):
        return s.emit(op, x, params={"weight": scale, "bias": bias}, **attrs)
    y = s.inner("mul", s.inner(op, x, **attrs), scale)
    return y if bias is None else s.emit("add", y, bias)


@onnx_op("LayerNormalization")
def layer_norm(
    s: Site,
    x: Operand,
    scale: Operand,
    bias: Operand | None = None,
    *,
    axis: int,
    epsilon: float,
    stash_type: int,
) -> Operand:
    s.used_only(0)
    axis = axis_of(axis, x.rank)
    tail = x.shape[axis:]
    sizes = tuple(fixed(d, "what it normalises over") for d in tail)
    if isinstance(scale, Const) and scale.shape != sizes:
        scale = s.const(np.broadcast_to(scale.array, sizes), "scale")
    if isinstance(bias, Const) and bias.shape != sizes:
        bias = s.const(np.broadcast_to(bias.array, sizes), "bias")
    return affine(s, "layer_norm", x, scale, bias, normalized_shape=sizes, eps=epsilon)


@onnx_op("InstanceNormalization")
def instance_norm(s: Site, x: Operand, scale: Operand, bias: Operand, *, epsilon: float) -> Operand:
    params = {"weight": scale, "bias": bias}
    return s.emit("group_norm", x, params=params, num_groups=_channels(x), eps=epsilon)


@onnx_op("GroupNormalization", since=21)
def group_norm(
    s: Site,
    x: Operand,
    scale: Operand,
    bias: Operand,
    *,
    epsilon: float,
    num_groups: int,
    stash_type: int = 1,
) -> Operand:
    return s.emit("group_norm", x, params={"weight": scale, "bias": bias}, num_groups=num_groups, eps=epsilon)


def _channels(x: Operand) -> int:
    if x.rank < 2 or not isinstance(x.shape[1], int):
        raise SpecError(f"its input {list(x.shape)} has no channels")
    return x.shape[1]


@onnx_op("LRN")
def lrn(s: Site, x: Operand, *, alpha: float, beta: float, bias: float, size: int) -> Operand:
    if not size % 2:
        raise Unsupported(f"of even size {size}")
    return s.emit("lrn", x, size=size, alpha=alpha, beta=beta, k=bias)


def op_name(kind: str, n: int) -> str:
    """``max_pool2d`` for a window of two axes."""
    return f"{kind}{n}d"


@onnx_op("MaxPool")
def max_pool(
    s: Site,
    x: Operand,
    *,
    auto_pad: str,
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    kernel_shape: Ints,
    pads: Ints | None,
    storage_order: int = 0,
    strides: Ints | None,
) -> Operand:
    s.used_only(0)
    stride, dilation, padding = windows(x, kernel_shape, strides, pads, dilations, auto_pad)
    if len(kernel_shape) != 2:
        raise Unsupported(f"{len(kernel_shape)}-dimensional")
    return s.emit(
        "max_pool2d", x, kernel=tuple(kernel_shape), stride=stride, padding=padding, dilation=dilation,
        ceil_mode=bool(ceil_mode),
    )  # fmt: skip


@onnx_op("AveragePool")
def avg_pool(
    s: Site,
    x: Operand,
    *,
    auto_pad: str,
    ceil_mode: int = 0,
    count_include_pad: int,
    dilations: Ints | None = None,
    kernel_shape: Ints,
    pads: Ints | None,
    strides: Ints | None,
) -> Operand:
    stride, dilation, padding = windows(x, kernel_shape, strides, pads, dilations, auto_pad)
    if len(kernel_shape) != 2:
        raise Unsupported(f"{len(kernel_shape)}-dimensional")
    if set(dilation) != {1}:
        raise Unsupported(f"with dilations={dilation}")
    return s.emit(
        "avg_pool2d", x, kernel=tuple(kernel_shape), stride=stride, padding=padding,
        ceil_mode=bool(ceil_mode), count_include_pad=bool(count_include_pad),
    )  # fmt: skip


@onnx_op("GlobalAveragePool", "GlobalMaxPool")
def global_pool(s: Site, x: Operand) -> Operand:
    op = "adaptive_avg_pool2d" if s.op_type == "GlobalAveragePool" else "adaptive_max_pool2d"
    if x.rank < 3:
        raise SpecError(f"its input {list(x.shape)} has no image")
    if x.rank == 4:
        return s.emit(op, x, output_size=1)
    image = reshaped(s, x, (*x.shape[:2], product(x.shape[2:]), 1), last=False)
    return reshaped(s, s.inner(op, image, output_size=1), (*x.shape[:2], *(1,) * (x.rank - 2)))


@onnx_op("ReduceMean")
def reduce_mean_by_attribute(s: Site, x: Operand, *, axes: Ints | None, keepdims: int) -> Operand:
    return _mean(s, x, axes, keepdims)


@onnx_op("ReduceMean", since=18)
def reduce_mean(
    s: Site, x: Operand, axes: Operand | None = None, *, keepdims: int, noop_with_empty_axes: int
) -> Operand:
    over = None if axes is None else s.ints(axes, "its axes")
    return x if noop_with_empty_axes and not over else _mean(s, x, over or None, keepdims)


def _mean(s: Site, x: Operand, axes: Ints | None, keepdims: int) -> Operand:
    over = sorted(axis_of(a, x.rank) for a in (range(x.rank) if axes is None else axes))
    if over != [2, 3] or x.rank != 4:
        raise Unsupported(f"over axes {over} of rank {x.rank}")
    if keepdims:
        return s.emit("adaptive_avg_pool2d", x, output_size=1)
    return reshaped(s, s.inner("adaptive_avg_pool2d", x, output_size=1), x.shape[:2])


@onnx_op("Softmax", "LogSoftmax")
def softmax_of_rows(s: Site, x: Operand, *, axis: int) -> Operand:
    """Before opset 13: over all axes from ``axis`` on, together."""
    axis = axis_of(axis, x.rank)
    op = "softmax" if s.op_type == "Softmax" else "log_softmax"
    if axis == x.rank - 1:
        return s.emit(op, x, axis=-1)
    rows: Dims = (*x.shape[:axis], product(x.shape[axis:]))
    return reshaped(s, s.inner(op, reshaped(s, x, rows, last=False), axis=-1), x.shape)


@onnx_op("Softmax", "LogSoftmax", since=13)
def softmax(s: Site, x: Operand, *, axis: int) -> Operand:
    return s.emit("softmax" if s.op_type == "Softmax" else "log_softmax", x, axis=axis_of(axis, x.rank))
