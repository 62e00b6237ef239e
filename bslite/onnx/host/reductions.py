"""Reductions, softmax and products on values of types that the engine lacks."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bslite.errors import InputError, UnsupportedError
from bslite.frontends.onnx.ops.reduce import REDUCTIONS, UNCHANGED
from bslite.onnx.host.node import host_op
from bslite.reference import FUNCTIONS
from bslite.spec import Array


def _reduction(function: Callable[..., Any], unchanged: bool) -> Callable[..., Array]:
    def reduce(x: Array, axes: Any = None, *, keepdims: int, noop_with_empty_axes: int = 0) -> Array:
        over = () if axes is None else tuple(int(a) for a in np.asarray(axes).reshape(-1))
        if not over and noop_with_empty_axes and unchanged:
            return x
        axis = over if over or noop_with_empty_axes else tuple(range(x.ndim))
        return np.asarray(function(x, axis=axis, keepdims=bool(keepdims))).astype(x.dtype)

    return reduce


for _name, (_function, _) in REDUCTIONS.items():
    host_op(_name)(_reduction(_function, _name in UNCHANGED))


@host_op("ArgMax", "ArgMin")
def arg_extreme(x: Array, *, axis: int, keepdims: int, select_last_index: int = 0, op_type: str) -> Array:
    """The place of the largest or smallest element along ``axis``, the first of several or the last."""
    find = np.argmax if op_type == "ArgMax" else np.argmin
    place = find(np.flip(x, axis) if select_last_index else x, axis)
    place = np.asarray(x.shape[axis] - 1 - place if select_last_index else place, np.int64)
    return np.expand_dims(place, axis) if keepdims else place


@host_op("CumSum", "CumProd")
def cumulative(x: Array, axis: Array, *, exclusive: int, reverse: int, op_type: str) -> Array:
    """Sums or products of all elements up to each one."""
    over = int(axis.item())
    way = np.flip(x, over) if reverse else x
    made = np.asarray((np.cumsum if op_type == "CumSum" else np.cumprod)(way, over, x.dtype))
    if exclusive:
        before = np.moveaxis(np.full_like(made, op_type == "CumProd"), over, 0)
        before[1:] = np.moveaxis(made, over, 0)[:-1]
        made = np.moveaxis(before, 0, over)
    return np.ascontiguousarray(np.flip(made, over) if reverse else made)


@host_op("Softmax", "LogSoftmax", "Hardmax")
def softmax(x: Array, *, axis: int, opset: int, op_type: str) -> Array:
    """Along ``axis``; before opset 13 over all axes from there on."""
    if not -x.ndim <= axis < max(x.ndim, 1):
        raise InputError(f"axis {axis} is out of range for rank {x.ndim}")
    at = axis % max(x.ndim, 1)
    flat = x.reshape(int(np.prod(x.shape[:at])), -1) if opset < 13 else np.moveaxis(x, at, -1)
    if op_type == "Hardmax":
        made = np.zeros_like(flat)
        np.put_along_axis(made, np.argmax(flat, -1)[..., None], 1, -1)
    else:
        op = "softmax" if op_type == "Softmax" else "log_softmax"
        made = FUNCTIONS[op](flat, axis=-1) if x.size else flat
    return made.reshape(x.shape) if opset < 13 else np.ascontiguousarray(np.moveaxis(made, -1, at))


@host_op("MatMul")
def matmul(a: Array, b: Array) -> Array:
    """The matrix product."""
    return np.asarray(np.matmul(a, b))


@host_op("Gemm")
def gemm(
    a: Array, b: Array, c: Array | None = None, *, alpha: float, beta: float, transA: int, transB: int
) -> Array:
    """``alpha * a @ b + beta * c``."""
    made = (a.T if transA else a) @ (b.T if transB else b)
    made = made if alpha == 1 else made * made.dtype.type(alpha)
    if c is None:
        return np.asarray(made)
    return np.asarray(made + (c if beta == 1 else c * made.dtype.type(beta))).astype(a.dtype)


@host_op("Einsum")
def einsum(*xs: Array, equation: str) -> Array:
    """The sum of products that the equation says."""
    return np.asarray(np.einsum(equation, *xs))


@host_op("BatchNormalization")
def batch_norm(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, *, epsilon: float, momentum: float,
    opset: int, training_mode: int = 0, is_test: int = 0, results: int,
) -> Array | tuple[Array, ...]:  # fmt: skip
    """By the statistics that are given; in training mode by those of the batch, with the running ones.

    Before opset 7 a node trains unless it says that it does not.
    """
    if opset < 14 and (results > 1 or (opset < 7 and not is_test)):
        raise UnsupportedError("in training mode")
    running: tuple[Array, ...] = ()
    if training_mode:
        axes = (0, *range(2, x.ndim))
        found = x.mean(axes), x.var(axes)
        share = x.dtype.type(momentum)
        given = zip((mean, var), found, strict=True)
        running = tuple((a * share + b * (1 - share)).astype(a.dtype) for a, b in given)
        mean, var = found
    scale, bias, mean, var = (p.reshape(-1, *[1] * (x.ndim - 2)) for p in (scale, bias, mean, var))
    made = np.asarray((x - mean) / np.sqrt(var + var.dtype.type(epsilon)) * scale + bias).astype(x.dtype)
    return (made, *running) if running else made


@host_op("LayerNormalization")
def layer_norm(
    x: Array, scale: Array, bias: Array | None = None, *, axis: int, epsilon: float
) -> tuple[Array, Array, Array]:
    """Mean 0 and variance 1 over the axes from ``axis`` on; also the means and the reciprocal deviations."""
    over = tuple(range(axis % x.ndim, x.ndim))
    mean = x.mean(over, keepdims=True)
    inverse = 1 / np.sqrt(np.square(x - mean).mean(over, keepdims=True) + x.dtype.type(epsilon))
    made = (x - mean) * inverse * scale
    return (made if bias is None else made + bias), mean, inverse
