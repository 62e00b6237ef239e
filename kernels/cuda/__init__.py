"""GPU kernels on numba.cuda over flat arrays: shapes and strides, nothing of graphs. See kernel.py first."""

from bslite.kernels.cuda import (
    attention,
    copy,
    cumulate,
    elementwise,
    gather,
    gemm,
    gemm_join,
    gemv,
    group_norm,
    index,
    normalize,
    pointwise,
    recurrent,
    reduce,
    softmax,
    stack,
    windows,
)
from bslite.kernels.cuda.kernel import KERNELS, Kernel

__all__ = [
    "KERNELS",
    "Kernel",
    "attention",
    "copy",
    "cumulate",
    "elementwise",
    "gather",
    "gemm",
    "gemm_join",
    "gemv",
    "group_norm",
    "index",
    "normalize",
    "pointwise",
    "recurrent",
    "reduce",
    "softmax",
    "stack",
    "windows",
]
