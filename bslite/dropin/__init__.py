"""Transparent use from torch: a module, or a graph from ``torch.compile``, run by bslite as far as it can."""

from bslite.dropin.bisection import Bisection, bisect
from bslite.dropin.reporting import Report, report
from bslite.dropin.wrapper import optimize, refresh

__all__ = ["Bisection", "Report", "bisect", "optimize", "refresh", "report"]
