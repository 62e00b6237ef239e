"""CPU kernels over raw memory: shapes and strides, nothing of graphs. See gemm_tile.py for the heart."""

from bslite.kernels.cpu import (
    cast,
    conv,
    copy_axes,
    gather,
    move,
    normalize,
    pack,
    peak,
    pointwise,
    pool,
    softmax,
    stack,
    stream,
    transpose,
    trilu,
    upsample,
)
from bslite.kernels.cpu.compile import STEP_KERNELS, compiled, on_ready

__all__ = [
    "STEP_KERNELS",
    "cast",
    "compiled",
    "conv",
    "copy_axes",
    "gather",
    "move",
    "normalize",
    "on_ready",
    "pack",
    "peak",
    "pointwise",
    "pool",
    "softmax",
    "stack",
    "stream",
    "transpose",
    "trilu",
    "upsample",
]
