"""The oracle: one plain NumPy function per op, and a loop over the layers. Read this first."""

from bslite.reference import (
    activation,
    attention,
    binary,
    cast,
    contraction,
    conv,
    gather,
    movement,
    normalize,
    pointwise,
    pool,
    recurrent,
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
    "attention",
    "binary",
    "call",
    "cast",
    "contraction",
    "conv",
    "gather",
    "layers",
    "movement",
    "normalize",
    "pointwise",
    "pool",
    "recurrent",
    "reduce",
    "run",
    "softmax",
    "unary",
    "upsample",
]
