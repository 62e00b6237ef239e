"""Where every millisecond goes: `explain` and what it gives."""

from bslite.explanation.api import explain
from bslite.explanation.layers import Row
from bslite.explanation.limits import Limits
from bslite.explanation.result import Explanation

__all__ = ["Explanation", "Limits", "Row", "explain"]
