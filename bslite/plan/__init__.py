"""From layers to a Plan: where every value lives, which kernel does what, in which order. No JIT here."""

from bslite.plan.core.plan import Access, AnyPlan, Const, Plan, Step
from bslite.plan.core.views import Buffer, View
from bslite.plan.cpu.build import build_plan

__all__ = ["Access", "AnyPlan", "Buffer", "Const", "Plan", "Step", "View", "build_plan"]
