"""Losses, of each element."""

import numpy as np

from bslite.reference.registry import Array, reference


@reference("binary_cross_entropy")
def binary_cross_entropy(x: Array, target: Array) -> Array:
    """``-(t log(x) + (1 - t) log(1 - x))``, no logarithm below -100."""
    yes, no = (np.maximum(log, x.dtype.type(-100)) for log in (np.log(x), np.log1p(-x)))
    return np.asarray((target - 1) * no - target * yes)
