"""From layers to a Plan: where every value lives, which kernel does what, in which order. No JIT here."""

from bslite.plan.build import build_plan
from bslite.plan.plan import Access, Const, Plan, Step
from bslite.plan.views import Buffer, View

__all__ = ["Access", "Buffer", "Const", "Plan", "Step", "View", "build_plan"]
