"""Known arrays that repeat themselves along an axis: views of stride 0, which cost no memory.

Exporters write masks, grids and positions as constants expanded to a size. Only their distinct elements are
ever computed, so a large size costs nothing until the model itself needs such an array.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bslite.spec import Array


def repeats(a: Array) -> bool:
    """Whether ``a`` is a view that repeats itself along an axis."""
    return a.size > 0 and any(n > 1 and step == 0 for n, step in zip(a.shape, a.strides, strict=True))


def distinct(a: Array) -> Array:
    """``a`` with every axis along which it repeats itself cut to size 1."""
    if not repeats(a):
        return a
    return a[tuple(slice(0, 1) if step == 0 else slice(None) for step in a.strides)]


def pointwise(function: Callable[..., Any], arrays: Sequence[Array]) -> Array:
    """An elementwise ``function`` of arrays that broadcast, computed for distinct elements."""
    if not any(map(repeats, arrays)):
        return np.asarray(function(*arrays))
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    return np.broadcast_to(np.asarray(function(*map(distinct, arrays))), shape)


def same(a: Array, b: Array) -> bool:
    """Whether two arrays are equal, NaN with NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if repeats(a) and repeats(b):
        cut = tuple(
            slice(0, 1) if s == t == 0 else slice(None) for s, t in zip(a.strides, b.strides, strict=True)
        )
        a, b = a[cut], b[cut]
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
