"""The fully connected layer and the matrix product."""

import numpy as np

from bslite.reference.registry import Array, reference


@reference("linear")
def linear(x: Array, *, weight: Array, bias: Array | None = None) -> Array:
    """``y[...,k] = bias[k] + sum_c x[...,c] * weight[k,c]``; x ``[..., C]``, weight ``[K, C]``."""
    y = x @ weight.T
    return y if bias is None else y + bias


@reference("matmul")
def matmul(x: Array, y: Array) -> Array:
    """``z[...,m,n] = sum_k x[...,m,k] * y[...,k,n]``, the leading axes broadcast."""
    return np.matmul(x, y)
