"""Transparent use from torch: a module, or a graph from ``torch.compile``, run by bslite as far as it can."""

from bslite.frontends.common.lazy import load_torch

load_torch()  # or an error that says how to install it

from bslite.dropin.diagnosis.bisection import Bisection, bisect  # noqa: E402
from bslite.dropin.diagnosis.reporting import Report, report  # noqa: E402
from bslite.dropin.wrapper import optimize, refresh  # noqa: E402

__all__ = ["Bisection", "Report", "bisect", "optimize", "refresh", "report"]
