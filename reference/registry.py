"""Op name -> plain NumPy function of its inputs in order, parameters and attributes by name."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite import ops
from bslite.errors import IntegerRangeError
from bslite.registry import Registry
from bslite.spec import Array

Function = Callable[..., Array]
FUNCTIONS: Registry[Function] = Registry("reference function")


def reference(*names: str) -> Callable[[Function], Function]:
    """Register the definition of an op, or of a family of ops."""
    for name in names:
        ops.get(name)
    return FUNCTIONS.register(*names)


def same_as_numpy(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Register NumPy's functions of the same meaning: op -> function. Inputs broadcast as NumPy has it."""
    for name, function in functions.items():
        reference(name)(functools.partial(_as_array, function))


def _as_array(function: Callable[..., Any], *xs: Array) -> Array:
    return np.asarray(function(*xs))  # NumPy makes a scalar of arrays of rank 0


def in_dtype(dtype: np.dtype[Any], made: Array) -> Array:
    """Integers computed in 64 bits as an integer type; IntegerRangeError where it does not hold them."""
    edge = np.iinfo(dtype)
    wrong = (made < edge.min) | (made > edge.max)
    if np.any(wrong):
        raise IntegerRangeError(f"the result {np.asarray(made)[wrong].flat[0]} does not fit {dtype}")
    return np.asarray(made, dtype)


def floating(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """float32 or float64, the precisions the oracle computes in."""
    d = np.dtype(dtype)
    if d not in (np.float32, np.float64):
        raise ValueError(f"the reference computes in float32 or float64, not {d}")
    return d
