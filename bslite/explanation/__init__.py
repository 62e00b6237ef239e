"""Where every millisecond goes: `explain` and what it gives."""

from bslite.explanation.api import explain
from bslite.explanation.gpu import GpuExplanation, GpuRow
from bslite.explanation.limits import Limits
from bslite.explanation.result import Explanation
from bslite.explanation.rows import Row

__all__ = ["Explanation", "GpuExplanation", "GpuRow", "Limits", "Row", "explain"]
