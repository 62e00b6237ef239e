"""GPU kernels on numba.cuda over flat arrays: shapes and strides, nothing of graphs. See runtime/kernel.py
first.
"""

from bslite.kernels.cuda.runtime.kernel import KERNELS, Kernel
from bslite.registry import load_modules

load_modules(__name__, skip=("compile", "simulation"))

__all__ = ["KERNELS", "Kernel"]
