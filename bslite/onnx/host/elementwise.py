"""Elementwise operators on values of types that the engine lacks: float64, int16, uint64 and so on.

What a builder computes of known arrays, or the reference of any, is computed here in the type that comes.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from bslite.errors import InputError, UnsupportedError
from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.onnx.ops.activations import ACTIVATIONS
from bslite.frontends.onnx.ops.arith import CHAINED, ELEMENTWISE, TOLD
from bslite.frontends.onnx.tensors import dtype_name
from bslite.onnx.host.node import host_op
from bslite.onnx.host.text import numbers, texts
from bslite.reference import FUNCTIONS
from bslite.spec import Array


def _plain(function: Callable[..., Any], told: bool) -> Callable[..., Array]:
    def compute(*xs: Array, opset: int) -> Array:
        if told and opset < 7 and len({x.shape for x in xs}) > 1:
            raise InputError(f"operands of opset {opset} of different shapes")
        return np.asarray(function(*xs))

    return compute


for _name, (_function, _) in ELEMENTWISE.items():
    host_op(_name)(_plain(_function, _name in TOLD))


def _chained(function: Callable[..., Any]) -> Callable[..., Array]:
    return lambda *xs: np.asarray(functools.reduce(function, xs))


for _name, (_function, _) in CHAINED.items():
    host_op(_name)(_chained(_function))


def _active(op: str, names: dict[str, str]) -> Callable[..., Array]:
    def compute(*xs: Array, **given: Any) -> Array:
        return np.asarray(FUNCTIONS[op](*xs, **{ours: given[theirs] for theirs, ours in names.items()}))

    return compute


for _name, (_op, _names) in ACTIVATIONS.items():
    host_op(_name)(_active(_op, _names))


@host_op("Mean")
def mean(*xs: Array) -> Array:
    """The mean of the inputs, element by element."""
    return np.asarray(functools.reduce(np.add, xs) / xs[0].dtype.type(len(xs)))


@host_op("Relu")
def relu(x: Array) -> Array:
    """No number below zero."""
    return np.maximum(x, x.dtype.type(0))


@host_op("Softplus")
def softplus(x: Array) -> Array:
    """``log(1 + exp(x))``."""
    return np.logaddexp(x, x.dtype.type(0))


@host_op("Clip")
def clip(x: Array, min: Any = None, max: Any = None) -> Array:
    """``x`` within bounds, each of which may be left out."""
    low, high = (None if b is None else np.asarray(b).astype(x.dtype) for b in (min, max))
    made = x if low is None else np.maximum(x, low)
    return made if high is None else np.minimum(made, high)


@host_op("Pow")
def power(x: Array, exponent: Array) -> Array:
    """``x ** exponent`` in the type of ``x``."""
    wide = exponent.astype(np.float64) if x.dtype.kind in "iu" and (exponent < 0).any() else exponent
    return np.asarray(np.power(x, wide)).astype(x.dtype)


@host_op("Mod")
def mod(a: Array, b: Array, *, fmod: int) -> Array:
    """The remainder with the sign of ``b``, or that of ``a`` for ``fmod``."""
    if a.dtype.kind in "iu" and not np.all(b):
        raise InputError("integer division by zero")
    return np.asarray(np.fmod(a, b) if fmod else np.mod(a, b))


@host_op("BitShift")
def bit_shift(a: Array, b: Array, *, direction: str) -> Array:
    """Integers moved by ``b`` bits; beyond their width nothing is left, to the right but the sign."""
    if direction not in ("LEFT", "RIGHT"):
        raise InputError(f"direction {direction!r} is neither LEFT nor RIGHT")
    width = a.dtype.itemsize * 8
    near = np.minimum(b, b.dtype.type(width - 1))
    moved = np.left_shift(a, near) if direction == "LEFT" else np.right_shift(a, near)
    rest = moved if direction == "RIGHT" and a.dtype.kind == "i" else a.dtype.type(0)
    return np.where(b < width, moved, rest)


@host_op("IsInf")
def is_inf(x: Array, *, detect_negative: int, detect_positive: int) -> Array:
    """Whether each element is infinite, of the signs asked for."""
    found = np.isinf(x)
    return np.asarray(found & (((x < 0) & bool(detect_negative)) | ((x > 0) & bool(detect_positive))))


@host_op("Cast")
def cast(x: Array, *, to: Any, exact: bool) -> Array:
    """``x`` in another type, as C converts. ``exact``: float64 stays where float32 is asked for."""
    return converted(x, dtype_name(to) if isinstance(to, int) else str(to).lower(), exact)


@host_op("CastLike")
def cast_like(x: Array, like: Array, *, exact: bool) -> Array:
    """``x`` in the type of ``like``."""
    return converted(x, "string" if like.dtype.kind in "OU" else like.dtype.name, exact)


@functools.lru_cache(64)
def _dtype(name: str, exact: bool) -> np.dtype[Any]:
    try:
        return np.dtype("float64" if exact and name in ("float16", "float32") else name)
    except TypeError:
        raise UnsupportedError(f"to {name}") from None


def converted(x: Array, to: str, exact: bool) -> Array:
    """``x`` in the type ``to``, by ONNX's name of it."""
    if to == "string":
        return texts(x)
    if to.startswith(("float8", "float4")) and x.dtype.kind not in "OU":
        return _small_float(x, to)
    dtype = _dtype(to, exact)
    return numbers(x, dtype) if x.dtype.kind in "OU" else x.astype(dtype)


def _small_float(x: Array, to: str) -> Array:
    """Floats of 8 and 4 bits, the largest where a number is beyond it; by ONNX's names or NumPy's."""
    onnx = load_onnx()
    codes = onnx.TensorProto.DataType
    known = {name.replace("_", "").lower(): codes.Value(name) for name in codes.keys()}  # noqa: SIM118
    code = known.get(to.replace("_", "").removesuffix("fn")) or known.get(to.replace("_", ""))
    if code is None or code == codes.Value("FLOAT8E8M0"):  # powers of two, which round in ways of their own
        raise UnsupportedError(f"to {to}")
    made: Array = onnx.numpy_helper.saturate_cast(x, onnx.helper.tensor_dtype_to_np_dtype(code))
    return made
