"""Builders of values made of shapes and constants; Identity and Dropout."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.store import MAX_ELEMENTS
from bslite.frontends.onnx.tensors import sizes
from bslite.frontends.onnx.values import Const, Known, Operand, Sizes
from bslite.spec import Array


@onnx_op("Identity")
def identity(s: Site, x: Operand) -> Operand:
    return x


@onnx_op("Constant")
def constant(
    s: Site, *, value: Array | None = None, value_float: float | None = None,
    value_floats: Sequence[float] | None = None, value_int: int | None = None,
    value_ints: Sequence[int] | None = None, value_string: str | None = None,
    value_strings: Sequence[str] | None = None, sparse_value: Any = None,
) -> Const:  # fmt: skip
    floats, ints = np.float32, np.int64
    forms: list[tuple[Any, Any]] = [
        (value, None), (value_float, floats), (value_floats, floats), (value_int, ints), (value_ints, ints),
    ]  # fmt: skip
    if value_string is not None or value_strings is not None or sparse_value is not None:
        raise Unsupported("of strings, or sparse")
    given = [(v, dtype) for v, dtype in forms if v is not None]
    if len(given) != 1:
        raise SpecError(f"it gives {len(given)} values, expected one")
    array, dtype = given[0]
    return Const(np.asarray(array, dtype), s.name)


def sizes_of(x: Operand, s: Site) -> Known:
    """The shape of ``x`` as an array, or one per probe."""
    arrays = tuple(np.array(shape, np.int64) for shape in x.shapes)
    if all(np.array_equal(a, arrays[0]) for a in arrays):
        return s.const(arrays[0], "shape")
    return Sizes(arrays)


@onnx_op("Shape")
def shape(s: Site, x: Operand, *, start: int = 0, end: int | None = None) -> Known:
    return s.compute(lambda a: a[slice(start, end)], sizes_of(x, s))


@onnx_op("Size")
def size(s: Site, x: Operand) -> Known:
    return s.compute(lambda a: np.prod(a, dtype=np.int64), sizes_of(x, s))


@onnx_op("ConstantOfShape")
def constant_of_shape(s: Site, shape: Operand, *, value: Array | None) -> Known:
    filler = np.zeros(1, np.float32) if value is None else value
    if filler.size != 1:
        raise SpecError(f"its value has {filler.size} elements, expected one")

    def fill(dims: Array) -> Array:
        return np.broadcast_to(filler.reshape(-1)[0], checked(dims))

    return s.compute(fill, s.known(shape, "its shape"))


def checked(dims: Array) -> tuple[int, ...]:
    """Sizes of a view that repeats itself, within what any machine could run."""
    made = sizes([int(d) for d in dims.reshape(-1)], "its result")
    if math.prod(made) > MAX_ELEMENTS:
        raise SpecError(f"its result {list(made)} is too large for any memory")
    return made


@onnx_op("Range")
def range_(s: Site, start: Operand, limit: Operand, delta: Operand, *, stash_type: Any = None) -> Known:
    def make(a: Array, b: Array, d: Array) -> Array:
        if not d.any():
            raise ValueError("a step of zero")
        count = max(0.0, np.ceil((float(b.item()) - float(a.item())) / float(d.item())))
        s.store.allow(int(min(count, 2.0**62)))
        return (a.item() + np.arange(int(count)) * d.item()).astype(a.dtype)

    known = [s.known(x, f"its {what}") for x, what in ((start, "start"), (limit, "limit"), (delta, "delta"))]
    return s.compute(make, *known)


@onnx_op("NonZero")
def non_zero(s: Site, x: Operand) -> Known:
    return s.compute(lambda a: np.array(np.nonzero(np.atleast_1d(a)), np.int64), s.known(x, "its input"))


@onnx_op("EyeLike")
def eye_like(s: Site, x: Operand, *, dtype: int | None, k: int) -> Known:
    from bslite.frontends.onnx.tensors import dtype_name

    kind = dtype_name(dtype) if dtype else x.dtype
    if x.rank != 2:
        raise SpecError(f"its input has rank {x.rank}, expected 2")

    def make(dims: Array) -> Array:
        rows, columns = checked(dims)
        s.store.allow(rows * columns)
        return np.eye(rows, columns, k, kind)

    return s.compute(make, sizes_of(x, s))


@onnx_op("Dropout", since=7)
def dropout(
    s: Site, x: Operand, ratio: Operand | float | None = None, training: Operand | None = None, *,
    seed: int | None = None,
) -> Any:  # fmt: skip
    trains = training is not None and s.number(training, "its training_mode")
    if trains and (ratio is None or s.number(ratio, "its ratio")):
        raise Unsupported("in training mode")
    return x, _all_true(s, x)


def _all_true(s: Site, x: Operand) -> Known | None:
    """The mask of a dropout that drops nothing."""
    if len(s.used) < 2 or not s.used[1]:
        return None
    return s.compute(lambda d: np.broadcast_to(np.bool_(True), checked(d)), sizes_of(x, s))
