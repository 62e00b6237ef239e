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


@reference("grouped_linear")
def grouped_linear(x: Array, ends: Array, *, weight: Array) -> Array:
    """``y[t,k] = sum_c x[t,c] * weight[e,k,c]`` for the rows t of group e, from the largest end before
    ``ends[e]`` to that; rows behind all ends are zero. x ``[T, C]``, weight ``[E, K, C]``.
    """
    y, first = np.zeros((len(x), weight.shape[1]), x.dtype), 0
    for end, matrix in zip(ends, weight, strict=True):
        last = min(int(end), len(x))
        if last > first:
            y[first:last] = x[first:last] @ matrix.T
            first = last
    return y
