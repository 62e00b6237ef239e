"""Plans for GPUs: layers as launches of the kernels in ``kernels/cuda``. Nothing here is compiled."""

from bslite.plan.cuda.build import build_plan, unsupported_ops

__all__ = ["build_plan", "unsupported_ops"]
