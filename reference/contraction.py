"""The fully connected layer and the matrix product."""

import numpy as np

from bslite.reference.registry import Array, reference


@reference("linear")
def linear(x: Array, *, weight: Array, bias: Array | None = None) -> Array:
    """``y[...,k] = bias[k] + sum_c x[...,c] * weight[k,c]``; x ``[..., C]``, weight ``[K, C]``."""
    y = x @ weight.T
    return y if bias is None else y + bias


def numbers_of_blocks(weight: Array, scale: Array, zero: Array | None, bits: int) -> Array:
    """``(q - zero) * scale`` of all numbers q in ``weight [K, blocks, bytes]``, row by row; scale and zero
    are ``[K, blocks]``.
    """
    codes = weight if bits == 8 else np.stack([weight & 15, weight >> 4], -1).reshape(*weight.shape[:2], -1)
    middle = np.asarray(2 ** (bits - 1), scale.dtype) if zero is None else zero[..., None]
    made = (codes.astype(scale.dtype) - middle) * scale[..., None]
    return np.asarray(made.reshape(len(weight), -1))


@reference("block_linear")
def block_linear(
    x: Array, *, weight: Array, scale: Array, zero: Array | None = None, bias: Array | None = None, bits: int
) -> Array:
    """`linear` with the weights of `numbers_of_blocks`, of which x ``[..., C]`` takes the first C a row."""
    return linear(x, weight=numbers_of_blocks(weight, scale, zero, bits)[:, : x.shape[-1]], bias=bias)


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
