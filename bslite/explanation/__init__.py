"""Where every millisecond goes: `explain` and what it gives."""

from bslite.explanation.api import explain
from bslite.explanation.cpu import Explanation
from bslite.explanation.data.gpu import GpuRow
from bslite.explanation.data.limits import Limits
from bslite.explanation.data.pieces import PieceRow
from bslite.explanation.data.rows import Row
from bslite.explanation.gpu import GpuExplanation
from bslite.explanation.pieces import PiecesExplanation

__all__ = [
    "Explanation",
    "GpuExplanation",
    "GpuRow",
    "Limits",
    "PieceRow",
    "PiecesExplanation",
    "Row",
    "explain",
]
