"""Operators of linear algebra on small matrices, and of the bits of numbers."""

import numpy as np

from bslite.errors import InputError, SpecError
from bslite.frontends.onnx.tensors import dtype_name
from bslite.onnx.host.node import host_op
from bslite.spec import Array

AT_ONCE = 1 << 17  # differences of elements, which then stay in the second cache


def squared_distances(a: Array, b: Array) -> Array:
    """[rows of a, rows of b] in float64: the squares of differences, summed."""
    a, b = a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)
    made = np.empty((len(a), len(b)))
    step = max(1, AT_ONCE // max(1, b.size))
    for start in range(0, len(a), step):
        apart = a[start : start + step, None] - b
        np.einsum("ijk,ijk->ij", apart, apart, out=made[start : start + step])
    return made


@host_op("Det")
def det(x: Array) -> Array:
    """The determinant of each matrix."""
    return np.asarray(np.linalg.det(x.astype(np.float64)), x.dtype)


@host_op("com.microsoft:Inverse")
def inverse(x: Array) -> Array:
    """The inverse of each matrix. InputError if one has none."""
    return np.asarray(np.linalg.inv(x.astype(np.float64)), x.dtype)


@host_op("com.microsoft:CDist")
def distances(a: Array, b: Array, *, metric: str = "sqeuclidean") -> Array:
    """[rows of a, rows of b]: the distance of each pair of rows, or its square."""
    if metric not in ("sqeuclidean", "euclidean"):
        raise SpecError(f"metric {metric!r}, expected euclidean or sqeuclidean")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise InputError(f"{list(a.shape)} and {list(b.shape)}, expected rows of one length")
    made = squared_distances(a, b)
    return (made if metric == "sqeuclidean" else np.sqrt(made)).astype(a.dtype)


@host_op("BitCast")
def bit_cast(x: Array, *, to: int) -> Array:
    """The same bits as numbers of another type of that size."""
    dtype = np.dtype(dtype_name(to))
    if dtype.itemsize != x.dtype.itemsize:
        raise InputError(f"bits of {x.dtype} as {dtype}, which is of another size")
    return np.ascontiguousarray(x).view(dtype).reshape(x.shape)
