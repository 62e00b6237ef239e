"""Comparisons, conditions, logic, as NumPy has them."""

import numpy as np

from bslite.reference.registry import Array, reference, same_as_numpy

same_as_numpy(
    {
        "equal": np.equal,
        "not_equal": np.not_equal,
        "less": np.less,
        "less_equal": np.less_equal,
        "greater": np.greater,
        "greater_equal": np.greater_equal,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "not": np.invert,
        "where": np.where,
        "isnan": np.isnan,
    }
)


@reference("isinf")
def isinf(x: Array, *, negative: bool, positive: bool) -> Array:
    """``x == -inf`` if negative is asked for, ``x == inf`` if positive."""
    return np.asarray((np.isneginf(x) & negative) | (np.isposinf(x) & positive))
