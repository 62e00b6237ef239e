"""The GPU engine: plans launched with numba.cuda kernels, or run in its simulator."""

from bslite.engines.cuda.engine import CudaEngine, engine_for, run, trace, warmup

__all__ = ["CudaEngine", "engine_for", "run", "trace", "warmup"]
