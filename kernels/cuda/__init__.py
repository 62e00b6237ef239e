"""GPU kernels on numba.cuda over flat arrays: they know shapes and strides, not graphs. Start with
runtime/kernel.py.
"""

from bslite.kernels.cuda.runtime.kernel import KERNELS, Kernel
from bslite.registry import load_modules

load_modules(__name__, skip=("compile", "simulation"))

__all__ = ["KERNELS", "Kernel"]
