"""Arithmetic of complex numbers, pairs along the last axis."""

import numpy as np

from bslite.reference.registry import Array, reference


@reference("complex_mul")
def complex_mul(x: Array, y: Array, *, conj: bool) -> Array:
    """``(a + ib)(c + id) = (ac - bd) + i(ad + bc)``; ``conj``: of ``c - id``."""
    (a, b), (c, d) = (np.moveaxis(z, -1, 0) for z in (x, y))
    d = -d if conj else d
    return np.stack([a * c - b * d, a * d + b * c], -1)
