"""Spearman's rank correlation."""

from collections.abc import Sequence

import numpy as np

from bslite.spec import Array


def ranks(values: Sequence[float]) -> Array:
    """The place of each among all, from 0; equal ones share the mean of theirs."""
    _, inverse, counts = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    found: Array = (last - (counts - 1) / 2)[inverse]
    return found


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Pearson's correlation of the ranks, -1 to 1; None where there is no order on a side."""
    a, b = ranks(one), ranks(other)
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])
