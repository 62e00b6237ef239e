"""Builders of matrix products, norms and softmax."""

from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.norms import normalised_by_batch
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.common.values import Dims
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.integers import linear_of_blocks, linear_of_scaled
from bslite.frontends.onnx.ops.moves import axis_of, permuted, reshaped
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Const, Operand, Value, fixed, product


@onnx_op("Gemm")
def gemm(
    s: Site, a: Operand, b: Operand, c: Operand | None = None, *, alpha: float, beta: float, transA: int,
    transB: int, **_: Any,
) -> Operand:  # fmt: skip
    if a.rank != 2 or b.rank != 2:
        raise SpecError(f"it takes two matrices, got {list(a.shape)} and {list(b.shape)}")
    x = permuted(s, a, (1, 0), last=False) if transA else a
    columns = b.shape[0 if transB else 1]
    if isinstance(b, Const) and (c is None or (isinstance(c, Const) and c.shape == (columns,))):
        of_integers = linear_of_scaled(s, x, b, bool(transB), c) if alpha == beta == 1 else None
        if of_integers is not None:
            return of_integers
        of_blocks = linear_of_blocks(s, x, b, bool(transB), c) if alpha == beta == 1 else None
        if of_blocks is not None:
            return of_blocks
        weight, bias = b, c
        if not transB or alpha != 1:
            weight = s.derived(b, "weight", (transB, alpha), lambda d: turned(d, bool(transB), alpha))
        if isinstance(c, Const) and beta != 1:
            bias = s.const(scaled(c.data, beta), "bias")
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


def turned(matrix: Any, rows: bool, factor: float) -> Any:
    """A matrix, of ``rows`` one for each output already, as a linear layer has it, times a number."""
    return scaled(np.ascontiguousarray(matrix if rows else matrix.T), factor)


def scaled(array: Any, factor: float) -> Any:
    """``array`` times a number, rounded once."""
    return array if factor == 1 else (array.astype(np.float64) * factor).astype(array.dtype)


@onnx_op("MatMul")
def matmul(s: Site, a: Operand, b: Operand) -> Operand:
    if min(a.rank, b.rank) < 1:
        raise SpecError("it takes no numbers")
    if isinstance(b, Const) and b.rank == 2 and isinstance(a, Value) and a.rank > 1:
        of_integers = linear_of_scaled(s, a, b, rows=False)
        if of_integers is not None:
            return of_integers
        of_blocks = linear_of_blocks(s, a, b, rows=False)
        if of_blocks is not None:
            return of_blocks
        weight = s.derived(b, "weight", (0, 1.0), lambda d: turned(d, False, 1.0))
        return s.emit("linear", a, params={"weight": weight})
    if a.rank > 1 and b.rank > 1:
        return s.emit("matmul", a, b)
    x = reshaped(s, a, (1, *a.shape), last=False) if a.rank == 1 else a
    y = reshaped(s, b, (*b.shape, 1), last=False) if b.rank == 1 else b
    made = s.inner("matmul", x, y)
    shape = made.shape[:-1] if b.rank == 1 else made.shape
    row = -1 if b.rank == 1 else -2
    if a.rank == 1:
        shape = (*shape[:row], *shape[len(shape) + row + 1 :])
    return reshaped(s, made, shape)


@onnx_op("BatchNormalization", since=7)
def batch_norm(
    s: Site, x: Operand, scale: Operand, bias: Operand, mean: Operand, var: Operand, *, epsilon: float,
    momentum: float, spatial: int = 1, training_mode: int = 0,
) -> Operand:  # fmt: skip
    if not spatial:
        raise Unsupported(f"with spatial={spatial}")
    s.used_only(0)
    if training_mode:
        made: Operand = normalised_by_batch(s, x, scale, bias, epsilon)
        return made
    params = {"weight": scale, "bias": bias, "running_mean": mean, "running_var": var}
    return s.emit("batch_norm", x, params=params, eps=epsilon)


def affine(s: Site, op: str, x: Operand, scale: Operand, bias: Operand | None, **attrs: Any) -> Operand:
    """A norm with its scale and bias: parameters if they are known, else layers of their own."""
    known = [not isinstance(v, Value) for v in (scale, bias)]
    if all(known):
        return s.emit(op, x, params={"weight": scale, "bias": bias}, **attrs)
    y = (s.emit if bias is None else s.inner)("mul", s.inner(op, x, **attrs), scale)
    return y if bias is None else s.emit("add", y, bias)


@onnx_op("LayerNormalization", "RMSNormalization")
def trailing_norm(
    s: Site, x: Operand, scale: Operand, bias: Operand | None = None, *, axis: int, epsilon: float,
    stash_type: int,
) -> Operand:  # fmt: skip
    s.used_only(0)
    sizes = tuple(fixed(d, "what it normalises over") for d in x.shape[axis_of(axis, x.rank) :])
    if isinstance(scale, Const) and scale.shape != sizes:
        scale = s.const(np.broadcast_to(scale.data, sizes), "scale")
    if isinstance(bias, Const) and bias.shape != sizes:
        bias = s.const(np.broadcast_to(bias.data, sizes), "bias")
    op = "layer_norm" if s.op_type == "LayerNormalization" else "rms_norm"
    return affine(s, op, x, scale, bias, normalized_shape=sizes, eps=epsilon)


@onnx_op("InstanceNormalization")
@onnx_op("GroupNormalization", since=21)
def group_norm(
    s: Site, x: Operand, scale: Operand, bias: Operand, *, epsilon: float, num_groups: int | None = None,
    stash_type: int = 1,
) -> Operand:  # fmt: skip
    """Without a number of groups, each channel by itself."""
    if num_groups is None:
        if x.rank < 2 or not isinstance(x.shape[1], int):
            raise SpecError(f"its input {list(x.shape)} has no channels")
        num_groups = x.shape[1]
    return s.emit("group_norm", x, params={"weight": scale, "bias": bias}, num_groups=num_groups, eps=epsilon)


@onnx_op("LRN")
def lrn(s: Site, x: Operand, *, alpha: float, beta: float, bias: float, size: int) -> Operand:
    if not size % 2:
        raise Unsupported(f"of even size {size}")
    return s.emit("lrn", x, size=size, alpha=alpha, beta=beta, k=bias)


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
