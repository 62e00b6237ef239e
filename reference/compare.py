"""Comparisons, conditions, logic, as NumPy has them."""

import numpy as np

from bslite.reference.registry import Array, reference

#: op -> NumPy's function of the same meaning
SAME = {
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


def _as_numpy(name: str) -> None:
    function = SAME[name]

    @reference(name)
    def apply(x: Array, y: Array) -> Array:
        return np.asarray(function(x, y))

    apply.__name__, apply.__doc__ = name, f"``numpy.{function.__name__}``, broadcast."


for _name in SAME:
    _as_numpy(_name)


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
