"""The oracle: one plain NumPy function per op, and a loop over the layers. Read this first."""

from bslite.reference.executor import call, layers, run
from bslite.reference.registry import FUNCTIONS
from bslite.registry import load_modules

load_modules(__name__)

__all__ = ["FUNCTIONS", "call", "layers", "run"]
