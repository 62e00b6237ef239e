"""The oracle: one plain NumPy function per op, and a loop over the layers. Read this first."""

from bslite.reference import (
    activation,
    cast,
    contraction,
    conv,
    gather,
    index,
    movement,
    normalize,
    pad,
    pointwise,
    pool,
    repeat,
    resize,
    softmax,
    upsample,
)
from bslite.reference.executor import call, layers, run
from bslite.reference.registry import FUNCTIONS

__all__ = [
    "FUNCTIONS",
    "activation",
    "call",
    "cast",
    "contraction",
    "conv",
    "gather",
    "index",
    "layers",
    "movement",
    "normalize",
    "pad",
    "pointwise",
    "pool",
    "repeat",
    "resize",
    "run",
    "softmax",
    "upsample",
]
