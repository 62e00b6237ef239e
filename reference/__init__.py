"""The oracle: one plain NumPy function per op, and a loop over the layers. Read this first."""

from bslite.reference import conv
from bslite.reference.executor import layers, run
from bslite.reference.registry import FUNCTIONS

__all__ = ["FUNCTIONS", "conv", "layers", "run"]
