"""Softmax, shifted by the maximum so that exp never overflows."""

import numpy as np

from bslite.reference.registry import Array, reference


@reference("softmax")
def softmax(x: Array, *, axis: int) -> Array:
    """``y = exp(x - m) / sum(exp(x - m))`` with ``m = max(x)``, along ``axis``."""
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@reference("log_softmax")
def log_softmax(x: Array, *, axis: int) -> Array:
    """``y = x - m - log(sum(exp(x - m)))`` with ``m = max(x)``, along ``axis``."""
    shifted = x - x.max(axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))
