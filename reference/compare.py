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
    }
)


@reference("not")
def not_(x: Array) -> Array:
    """``not x``; of integers ``-x - 1``, every bit flipped."""
    return np.asarray(np.invert(x))


@reference("where")
def where(condition: Array, x: Array, y: Array) -> Array:
    """``x`` where the condition is true, else ``y``."""
    return np.asarray(np.where(condition, x, y))


@reference("isnan")
def isnan(x: Array) -> Array:
    """``x != x``."""
    return np.asarray(np.isnan(x))


@reference("isinf")
def isinf(x: Array, *, negative: bool, positive: bool) -> Array:
    """``x == -inf`` if negative is asked for, ``x == inf`` if positive."""
    return np.asarray((np.isneginf(x) & negative) | (np.isposinf(x) & positive))
