"""Functions of two values, broadcast as NumPy does. NaN in either, NaN out, but for ``pow`` (C99)."""

from __future__ import annotations

import numpy as np

from bslite.reference.registry import Array, reference

#: op -> NumPy's function of the same meaning
SAME = {
    "add": np.add,
    "mul": np.multiply,
    "sub": np.subtract,
    "div": np.true_divide,
    "pow": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "fmod": np.fmod,
    "remainder": np.remainder,
    "atan2": np.arctan2,
}


def _as_numpy(name: str) -> None:
    function = SAME[name]

    @reference(name)
    def apply(x: Array, y: Array) -> Array:
        return np.asarray(function(x, y))  # NumPy makes a scalar of two arrays of rank 0

    apply.__name__, apply.__doc__ = name, f"``numpy.{function.__name__}``, broadcast."


for _name in SAME:
    _as_numpy(_name)


@reference("prelu")
def prelu(x: Array, y: Array) -> Array:
    """``x`` if ``x > 0`` else ``y * x``, arXiv 1502.01852."""
    return np.asarray(np.where(x > 0, x, x * y))
