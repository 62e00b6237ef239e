"""Picking by computed indices."""

import numpy as np

from bslite.errors import InputError
from bslite.reference.registry import Array, reference


@reference("gather")
def gather(x: Array, indices: Array, *, axis: int) -> Array:
    """``x[..., indices, ...]`` at ``axis`` (ONNX ``Gather``). InputError for an index outside ``[-n, n)``."""
    size = x.shape[axis]
    wrong = (indices < -size) | (indices >= size)
    if wrong.any():
        raise InputError(f"index {indices[wrong].flat[0]} is out of range for axis {axis} of size {size}")
    return np.asarray(np.take(x, indices, axis))
