"""Where every millisecond goes: `explain` and what it gives."""

from bslite.explanation.api import explain
from bslite.explanation.data.gpu import GpuExplanation, GpuRow
from bslite.explanation.data.limits import Limits
from bslite.explanation.data.result import Explanation
from bslite.explanation.data.rows import Row

__all__ = ["Explanation", "GpuExplanation", "GpuRow", "Limits", "Row", "explain"]
