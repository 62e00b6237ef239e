"""Figures and tables as markdown."""

import math
import statistics
from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A markdown table; the first ``left`` columns are text, the others figures. Short rows are filled up."""
    ruler = ["---"] * left + ["---:"] * (len(head) - left)
    filled = [[*row, *[""] * (len(head) - len(row))] for row in rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ruler, *filled])


def ms(seconds: float | None, digits: int = 1) -> str:
    """Seconds as milliseconds."""
    return "-" if seconds is None else f"{1e3 * seconds:.{digits}f}"


def megabytes(bytes_: float | None) -> str:
    """Bytes as MB, of a million bytes."""
    return "-" if bytes_ is None else f"{bytes_ / 1e6:.1f}"


def ratio(value: float | None) -> str:
    """How many times."""
    return "-" if value is None else f"{value:.2f}"


def share(value: float | None) -> str:
    """A fraction in per cent."""
    return "-" if value is None else f"{100 * value:.0f} %"


def geometric_mean(values: Sequence[float | None]) -> float | None:
    """Of the values there are."""
    logs = [math.log(v) for v in values if v]
    return math.exp(sum(logs) / len(logs)) if logs else None


def median_ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """The median over rounds of the ratio in each: what disturbed a round disturbed both."""
    return statistics.median(a / b for a, b in zip(theirs, ours, strict=True))
