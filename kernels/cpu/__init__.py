"""CPU kernels over raw memory: shapes and strides, nothing of graphs. See gemm/tile.py for the heart."""

from bslite.kernels.cpu.runtime.compile import STEP_KERNELS, compiled, on_ready
from bslite.registry import load_modules

load_modules(__name__)

__all__ = ["STEP_KERNELS", "compiled", "on_ready"]
