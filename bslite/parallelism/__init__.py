"""How to spread a model over cores: images of a request, runs at once, threads of a run. See `tune`."""

from bslite.parallelism.advice import Advice
from bslite.parallelism.api import tune

__all__ = ["Advice", "tune"]
