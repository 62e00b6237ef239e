"""CPU kernels over raw memory: they know shapes and strides, but no graphs. The core is gemm/tile.py."""

from bslite.kernels.cpu.runtime import names  # before anything is compiled
from bslite.kernels.cpu.runtime.compile import STEP_KERNELS, compiled, on_ready
from bslite.registry import load_modules

load_modules(__name__)

__all__ = ["STEP_KERNELS", "compiled", "names", "on_ready"]
