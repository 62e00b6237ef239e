"""The oracle: one plain NumPy function per op, and a loop over the layers. Read this first."""

from bslite.reference import (
    activation,
    binary,
    contraction,
    conv,
    movement,
    normalize,
    pointwise,
    pool,
    softmax,
    unary,
    upsample,
)
from bslite.reference.executor import layers, run
from bslite.reference.registry import FUNCTIONS

__all__ = [
    "FUNCTIONS",
    "activation",
    "binary",
    "contraction",
    "conv",
    "layers",
    "movement",
    "normalize",
    "pointwise",
    "pool",
    "run",
    "softmax",
    "unary",
    "upsample",
]
