"""GPU kernels on numba.cuda over flat arrays: shapes and strides, nothing of graphs. See kernel.py first."""

<<<<<<< HEAD
from bslite.kernels.cuda import gemm, pointwise
from bslite.kernels.cuda.kernel import KERNELS, Kernel

__all__ = ["KERNELS", "Kernel", "gemm", "pointwise"]
=======
from bslite.kernels.cuda import (
    copy,
    pointwise,
)
from bslite.kernels.cuda.kernel import KERNELS, Kernel

__all__ = [
    "KERNELS",
    "Kernel",
    "copy",
    "pointwise",
]
>>>>>>> gpuengine
