"""The oracle: one plain NumPy function per op, and a loop over the layers. Read this first."""

from bslite.reference import (
    activation,
    binary,
    cast,
    compare,
    contraction,
    conv,
    gather,
    movement,
    normalize,
    pointwise,
    pool,
    reduce,
    softmax,
    unary,
    upsample,
)
from bslite.reference.executor import call, layers, run
from bslite.reference.registry import FUNCTIONS

__all__ = [
    "FUNCTIONS",
    "activation",
    "binary",
    "call",
    "cast",
    "compare",
    "contraction",
    "conv",
    "gather",
    "layers",
    "movement",
    "normalize",
    "pointwise",
    "pool",
    "reduce",
    "run",
    "softmax",
    "unary",
    "upsample",
]
