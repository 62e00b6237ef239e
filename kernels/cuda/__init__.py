"""GPU kernels on numba.cuda over flat arrays: shapes and strides, nothing of graphs. See kernel.py first."""

from bslite.kernels.cuda import (
    attention,
    copy,
    elementwise,
    gemm,
    gemm_join,
    gemv,
    pointwise,
    stack,
    windows,
)
from bslite.kernels.cuda.kernel import KERNELS, Kernel

__all__ = [
    "KERNELS",
    "Kernel",
    "attention",
    "copy",
    "elementwise",
    "gemm",
    "gemm_join",
    "gemv",
    "pointwise",
    "stack",
    "windows",
]
