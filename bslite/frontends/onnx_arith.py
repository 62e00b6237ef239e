"""Builders of ONNX's arithmetic, element by element. What is known is computed with NumPy, sizes included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bslite import ops
from bslite.frontends.onnx_context import Site, onnx_op
from bslite.frontends.onnx_tensors import dtype_name
from bslite.frontends.onnx_values import Const, Operand, Sizes, Unsupported, Value
from bslite.spec import Array


def divide(a: Array, b: Array) -> Array:
    """ONNX's Div: integers towards zero, as C does."""
    if a.dtype.kind in "iu":
        if not np.all(b):
            raise ValueError("integer division by zero")
        return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)), a.dtype)
    return np.asarray(a / b)


def is_known(*operands: Operand) -> bool:
    """Whether all operands are constants or sizes."""
    return not any(isinstance(x, Value) for x in operands)


def same_kind(function: Callable[..., Any]) -> Callable[..., Array]:
    """``function`` with its result in the dtype of its first operand, as ONNX has it."""
    return lambda a, *rest: np.asarray(function(a, *rest)).astype(a.dtype)


#: Operator -> what it computes, and the op of bslite.
ELEMENTWISE: dict[str, tuple[Callable[..., Any], str]] = {
    "Add": (np.add, "add"),
    "Sub": (np.subtract, "sub"),
    "Mul": (np.multiply, "mul"),
    "Div": (divide, "div"),
    "Pow": (same_kind(np.power), "pow"),
    "Neg": (np.negative, "neg"),
    "Abs": (np.abs, "abs"),
    "Sign": (np.sign, "sign"),
    "Sqrt": (np.sqrt, "sqrt"),
    "Reciprocal": (same_kind(np.reciprocal), "reciprocal"),
    "Exp": (np.exp, "exp"),
    "Log": (np.log, "log"),
    "Sin": (np.sin, "sin"),
    "Cos": (np.cos, "cos"),
    "Floor": (np.floor, "floor"),
    "Ceil": (np.ceil, "ceil"),
    "Round": (np.round, "round"),
    "Equal": (np.equal, "equal"),
    "Greater": (np.greater, "greater"),
    "GreaterOrEqual": (np.greater_equal, "greater_equal"),
    "Less": (np.less, "less"),
    "LessOrEqual": (np.less_equal, "less_equal"),
    "Not": (np.logical_not, "logical_not"),
    "And": (np.logical_and, "logical_and"),
    "Or": (np.logical_or, "logical_or"),
    "Xor": (np.logical_xor, "logical_xor"),
    "Where": (np.where, "where"),
}


@onnx_op(*ELEMENTWISE)
def elementwise(s: Site, *xs: Operand) -> Operand:
    function, op = ELEMENTWISE[s.op_type]
    if is_known(*xs):
        return s.compute(function, *xs)
    if op not in ops.REGISTRY:
        raise Unsupported("")
    return s.emit(op, *xs)


def chain(s: Site, xs: tuple[Operand, ...], function: Any, op: str) -> Operand:
    """Two operands at a time, from the left."""
    if is_known(*xs):
        return s.compute(lambda *a: np.asarray(_reduce(function, a)), *xs)
    result = xs[0]
    for i, x in enumerate(xs[1:], 2):
        result = (s.emit if i == len(xs) else s.inner)(op, result, x)
    return result


def _reduce(function: Any, arrays: tuple[Array, ...]) -> Array:
    result = arrays[0]
    for a in arrays[1:]:
        result = function(result, a)
    return result


@onnx_op("Sum")
def sum_(s: Site, *xs: Operand) -> Operand:
    return chain(s, xs, np.add, "add")


@onnx_op("Mean")
def mean(s: Site, *xs: Operand) -> Operand:
    if len(xs) == 1:
        return xs[0]
    total = xs[0]
    for x in xs[1:]:
        total = s.inner("add", total, x)
    return s.emit("mul", total, s.const(np.float32(1 / len(xs)), "weight"))


@onnx_op("Cast")
def cast(s: Site, x: Operand, *, to: int, saturate: int | None = None, round_mode: Any = None) -> Operand:
    return as_dtype(s, x, dtype_name(to))


@onnx_op("CastLike")
def cast_like(
    s: Site, x: Operand, like: Operand, *, saturate: int | None = None, round_mode: Any = None
) -> Operand:
    return as_dtype(s, x, like.dtype)


def as_dtype(s: Site, x: Operand, to: str) -> Operand:
    """``x`` cast to the dtype ``to``."""
    if x.dtype == to:
        return x
    if isinstance(x, (Const, Sizes)):
        try:
            dtype = np.dtype(to)
        except TypeError:
            raise Unsupported(f"to {to}") from None
        return s.compute(lambda a: a.astype(dtype), x)
    if to not in ops.DTYPES:
        raise Unsupported(f"to {to}")
    return s.emit("cast", x, to=to)


@onnx_op("Relu", "Sigmoid", "Tanh", "HardSwish", "Erf", "Softplus", "Softsign", "Mish")
def activation(s: Site, x: Operand) -> Operand:
    op = s.op_type.lower()
    if op not in ops.REGISTRY:
        raise Unsupported("")
    return s.emit(op, x)


@onnx_op("LeakyRelu")
def leaky_relu(s: Site, x: Operand, *, alpha: float) -> Operand:
    return s.emit("leaky_relu", x, negative_slope=alpha)


@onnx_op("Elu")
def elu(s: Site, x: Operand, *, alpha: float) -> Operand:
    return s.emit("elu", x, alpha=alpha)


@onnx_op("Gelu")
def gelu(s: Site, x: Operand, *, approximate: str) -> Operand:
    return s.emit("gelu", x, approximate=approximate)


@onnx_op("Swish")
def swish(s: Site, x: Operand, *, alpha: float) -> Operand:
    if alpha != 1:
        raise Unsupported(f"with alpha={alpha}")
    return s.emit("silu", x)


@onnx_op("HardSigmoid")
def hard_sigmoid(s: Site, x: Operand, *, alpha: float, beta: float) -> Operand:
    if abs(alpha - 1 / 6) > 1e-7 or beta != 0.5:
        raise Unsupported(f"with alpha={alpha}, beta={beta}")
    return s.emit("hardsigmoid", x)


@onnx_op("Clip", since=6)
def clip_by_attributes(s: Site, x: Operand, *, min: float, max: float) -> Operand:
    low = None if min <= np.finfo(np.float32).min else min
    return clamp(s, x, low, None if max >= np.finfo(np.float32).max else max)


@onnx_op("Clip", since=11)
def clip(s: Site, x: Operand, low: Operand | None = None, high: Operand | None = None) -> Operand:
    if is_known(x, *(v for v in (low, high) if v)):
        bounds = [v for v in (low, high) if v]
        if not bounds:
            return x
        return s.compute(lambda a, *b: _clip(a, b[0] if low else None, b[-1] if high else None), x, *bounds)
    least = None if low is None else s.number(low, "its min")
    most = None if high is None else s.number(high, "its max")
    return clamp(s, x, least, most)


def _clip(a: Array, low: Array | None, high: Array | None) -> Array:
    a = a if low is None else np.maximum(a, low)
    return a if high is None else np.minimum(a, high)


def clamp(s: Site, x: Operand, low: float | None, high: float | None) -> Operand:
    """``min(max(x, low), high)``."""
    if low is None and high is None:
        return x
    if low == 0 and high == 6 and x.dtype == "float32":
        return s.emit("relu6", x)
    if low == 0 and high is None and x.dtype == "float32":
        return s.emit("relu", x)
    raise Unsupported(f"between {low} and {high}; bslite has relu and relu6")
