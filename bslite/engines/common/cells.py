"""The engines' border: inside, every value is 4-byte cells, all but float32 as int32; nothing is cut off."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bslite.errors import IntegerRangeError
from bslite.spec import ModelSpec

Array = npt.NDArray[np.generic]
LEAST, MOST = -(2**31), 2**31 - 1
MANY = 1 << 14  # bytes from which on threads that read them had best widen them
FLOAT, CELL, LONG = np.dtype("float32"), np.dtype("int32"), np.dtype("int64")


def to_cells(array: Array, what: str) -> Array:
    """``array`` as the engine keeps it. IntegerRangeError, naming ``what``, where 32 bits do not hold one."""
    dtype = array.dtype
    if dtype in (FLOAT, CELL):
        return array
    if dtype == LONG and array.size:
        least, most = _extremes(array)
        if least < LEAST or most > MOST:
            extreme = least if least < LEAST else most
            raise IntegerRangeError(f"{what} holds {extreme}; bslite computes with integers of 32 bits")
    return array.astype(CELL)


def _extremes(array: Array) -> tuple[int, int]:
    """The least and the greatest number. Of a few, Python finds them sooner than NumPy."""
    if array.size == 1:
        return (alone := int(array.item())), alone
    if array.size > 64:
        return int(array.min()), int(array.max())
    few = array.reshape(-1).tolist()
    return min(few), max(few)


def inputs_to_cells(spec: ModelSpec, inputs: Sequence[Array]) -> list[Array]:
    """The inputs of a run, checked before to be what the model takes."""
    return [to_cells(x, f"input {i.name!r}") for i, x in zip(spec.inputs, inputs, strict=True)]


def comes_as_bytes(array: Array) -> bool:
    """Whether an engine that can had best take an input as it is, so many bytes side by side."""
    return (
        array.itemsize == 1 and array.dtype.kind in "iu" and array.size >= MANY and array.flags.c_contiguous
    )


def from_cells(array: Array, dtype: str) -> Array:
    """The value that ``array``, float32 by its dtype whatever is in it, stands for."""
    return array if dtype == "float32" else array.view(np.int32).astype(dtype)
