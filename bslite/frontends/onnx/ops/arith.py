"""Builders of ONNX's elementwise arithmetic. Constants and sizes are computed with NumPy."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bslite import ops
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.broadcasts import distinct, repeats
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.tensors import dtype_name
from bslite.frontends.onnx.values import Const, Operand, Sizes, Value
from bslite.spec import Array


def divide(a: Array, b: Array) -> Array:
    """ONNX's Div: integers towards zero, as C does."""
    if a.dtype.kind in "iu":
        if not np.all(b):
            raise ValueError("integer division by zero")
        down = a // b
        return np.asarray(down + ((down < 0) & (down * b != a)), a.dtype)
    return np.asarray(a / b)


def is_known(*operands: Operand) -> bool:
    """Whether all operands are constants or sizes."""
    return not any(isinstance(x, Value) for x in operands)


def same_kind(function: Callable[..., Any]) -> Callable[..., Array]:
    """``function`` with its result in the dtype of its first operand, ONNX's rule."""
    return lambda a, *rest: np.asarray(function(a, *rest)).astype(a.dtype)


def erf(a: Array) -> Array:
    """The error function, element by element."""
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(a)).astype(a.dtype)


#: Operator -> what it computes, and the op of bslite.
ELEMENTWISE: dict[str, tuple[Callable[..., Any], str]] = {
    "Add": (np.add, "add"), "Sub": (np.subtract, "sub"), "Mul": (np.multiply, "mul"), "Div": (divide, "div"),
    "Neg": (np.negative, "neg"), "Abs": (np.abs, "abs"), "Sign": (np.sign, "sign"), "Sqrt": (np.sqrt, "sqrt"),
    "Reciprocal": (same_kind(np.reciprocal), "reciprocal"), "Exp": (np.exp, "exp"), "Log": (np.log, "log"),
    "Sin": (np.sin, "sin"), "Cos": (np.cos, "cos"), "Tan": (np.tan, "tan"), "Asin": (np.arcsin, "asin"),
    "Acos": (np.arccos, "acos"), "Atan": (np.arctan, "atan"), "Sinh": (np.sinh, "sinh"),
    "Cosh": (np.cosh, "cosh"), "Asinh": (np.arcsinh, "asinh"), "Acosh": (np.arccosh, "acosh"),
    "Atanh": (np.arctanh, "atanh"), "Erf": (erf, "erf"), "Floor": (np.floor, "floor"),
    "Ceil": (np.ceil, "ceil"), "Round": (np.round, "round"), "Equal": (np.equal, "equal"),
    "Greater": (np.greater, "greater"), "GreaterOrEqual": (np.greater_equal, "greater_equal"),
    "Less": (np.less, "less"), "LessOrEqual": (np.less_equal, "less_equal"), "Not": (np.logical_not, "not"),
    "And": (np.logical_and, "and"), "Or": (np.logical_or, "or"), "Xor": (np.logical_xor, "xor"),
    "Where": (np.where, "where"), "IsNaN": (np.isnan, "isnan"), "BitwiseAnd": (np.bitwise_and, "and"),
    "BitwiseOr": (np.bitwise_or, "or"), "BitwiseXor": (np.bitwise_xor, "xor"),
    "BitwiseNot": (np.bitwise_not, "not"),
}  # fmt: skip


#: Those whose operands had to be told how to broadcast before opset 7: see `ops.old`.
TOLD = ("Add", "Sub", "Mul", "Div", "And", "Or", "Xor", "Equal", "Greater", "Less")


@onnx_op(*(name for name in ELEMENTWISE if name not in TOLD))
@onnx_op(*TOLD, since=7)
def elementwise(s: Site, *xs: Operand) -> Operand:
    function, op = ELEMENTWISE[s.op_type]
    if is_known(*xs):
        return s.compute(function, *xs, each=True)
    if op == "not" and xs[0].dtype in ops.BYTES:
        return s.emit("xor", xs[0], s.const(np.array(-1).astype(xs[0].dtype), "ones"))
    return s.emit(op, *(thin(x, xs) for x in xs))


def thin(x: Operand, others: Sequence[Operand]) -> Operand:
    """``x``; a constant that repeats itself to the size of another operand without the repetition."""
    if not isinstance(x, Const) or not repeats(x.data):
        return x
    cut = distinct(x.data)
    for other in others:
        if isinstance(other, Value) and other.rank >= x.rank:
            sizes = other.shape[other.rank - x.rank :]
            if all(c == n or d != 1 for c, n, d in zip(cut.shape, x.data.shape, sizes, strict=True)):
                return Const(cut, x.key)
    return x


@onnx_op("IsInf")
def is_inf(s: Site, x: Operand, *, detect_negative: int, detect_positive: int) -> Operand:
    return s.emit("isinf", x, negative=bool(detect_negative), positive=bool(detect_positive))


#: Operators of any number of operands -> what they compute of two, and the op of bslite.
CHAINED: dict[str, tuple[Callable[..., Any], str]] = {
    "Sum": (np.add, "add"), "Max": (np.maximum, "maximum"), "Min": (np.minimum, "minimum"),
}  # fmt: skip


@onnx_op(*CHAINED)
def chain(s: Site, *xs: Operand) -> Operand:
    """Two operands at a time, from the left."""
    function, op = CHAINED[s.op_type]
    if is_known(*xs):
        return s.compute(lambda *arrays: np.asarray(functools.reduce(function, arrays)), *xs, each=True)
    result = xs[0]
    for i, x in enumerate(xs[1:], 2):
        result = (s.emit if i == len(xs) else s.inner)(op, result, x)
    return result


@onnx_op("Mean")
def mean(s: Site, *xs: Operand) -> Operand:
    if len(xs) == 1:
        return xs[0]
    total = xs[0]
    for x in xs[1:]:
        total = s.inner("add", total, x)
    return s.emit("mul", total, s.const(np.float32(1 / len(xs)), "weight"))


@onnx_op("Cast", since=6)
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
        return s.compute(lambda a: a.astype(dtype), x, each=True)
    if to not in ops.DTYPES:
        raise Unsupported(f"to {to}")
    return s.emit("cast", x, to=to)


@onnx_op("Pow", since=7)
def power(s: Site, x: Operand, exponent: Operand) -> Operand:
    """The result has the dtype of ``x``."""
    if is_known(x, exponent):
        return s.compute(same_kind(np.power), x, exponent, each=True)
    if x.dtype == "float32" and isinstance(exponent, Const) and exponent.data.size == 1:
        number = exponent.data.item()
        if number == 2 and exponent.rank <= x.rank:
            return s.emit("mul", x, x)
        exponent = s.const(np.asarray(exponent.data, np.float32), "exponent")
    kinds = x.dtype, exponent.dtype
    if "float32" not in kinds:
        return s.emit("pow", x, exponent)
    x, exponent = (as_float(s, v) for v in (x, exponent))
    if kinds[0] == "float32":
        return s.emit("pow", x, exponent)
    return s.emit("cast", s.inner("pow", x, exponent), to=kinds[0])


def as_float(s: Site, x: Operand) -> Operand:
    """``x`` as float32."""
    if x.dtype == "float32":
        return x
    if isinstance(x, Value):
        return s.inner("cast", x, to="float32")
    return s.compute(lambda a: a.astype(np.float32), x, each=True)


@onnx_op("Mod")
def mod(s: Site, a: Operand, b: Operand, *, fmod: int) -> Operand:
    """``fmod``: with the sign of the first operand, else that of the second."""
    if is_known(a, b):
        return s.compute(np.fmod if fmod else np.mod, a, b, each=True)
    return s.emit("fmod" if fmod else "remainder", a, b)
