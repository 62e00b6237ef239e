"""CPU kernels over raw memory: they know shapes and strides, nothing of graphs. See gemm_tile.py for the heart."""

from bslite.kernels.cpu import conv, move, pointwise, pool
from bslite.kernels.cpu.compile import STEP_KERNELS, compiled, on_ready

__all__ = ["STEP_KERNELS", "compiled", "conv", "move", "on_ready", "pointwise", "pool"]
