"""Broadcasting and triangles."""

import numpy as np

from bslite.reference.registry import Array, reference


@reference("expand")
def expand(x: Array, *, shape: tuple[int, ...]) -> Array:
    """``x`` broadcast with ``shape``; -1 there stands for x's size."""
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(1 if d == -1 else d for d in shape))).copy()


@reference("trilu")
def trilu(x: Array, *, upper: bool, diagonal: int) -> Array:
    """``y[..., i, j] = x[..., i, j]`` where ``j - i >= diagonal`` (upper) or ``<=`` (lower), else 0."""
    i, j = np.indices(x.shape[-2:])
    kept = j - i >= diagonal if upper else j - i <= diagonal
    return np.where(kept, x, x.dtype.type(0))
