"""GPU kernels on numba.cuda over flat arrays: shapes and strides, nothing of graphs. See kernel.py first."""

from bslite.kernels.cuda import (
    copy,
    gemm,
    gemm_join,
    gemv,
    pointwise,
)
from bslite.kernels.cuda.kernel import KERNELS, Kernel

__all__ = [
    "KERNELS",
    "Kernel",
    "copy",
    "gemm",
    "gemm_join",
    "gemv",
    "pointwise",
]
