"""The CPU engine: plans walked with Numba kernels."""

from bslite.engines.cpu.call import Call
from bslite.engines.cpu.engine import Engine, engine_for, prepare, run, trace, warmup

__all__ = ["Call", "Engine", "engine_for", "prepare", "run", "trace", "warmup"]
