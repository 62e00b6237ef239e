"""Op name -> plain NumPy function of its inputs in order, parameters and attributes by name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite import ops

Array = npt.NDArray[Any]
Function = Callable[..., Array]
FUNCTIONS: dict[str, Function] = {}


def reference(*names: str) -> Callable[[Function], Function]:
    """Register the definition of an op, or of a family of ops."""
    for name in names:
        ops.get(name)

    def register(function: Function) -> Function:
        for name in names:
            if name in FUNCTIONS:
                raise RuntimeError(f"op {name!r} has two reference functions")
            FUNCTIONS[name] = function
        return function

    return register


def floating(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """float32 or float64, the precisions the oracle computes in."""
    d = np.dtype(dtype)
    if d not in (np.float32, np.float64):
        raise ValueError(f"the reference computes in float32 or float64, not {d}")
    return d
