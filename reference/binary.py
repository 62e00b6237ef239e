"""Functions of two values, broadcast as NumPy does. NaN in either, NaN out, except for ``pow`` (C99)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from bslite.errors import InputError
from bslite.reference.registry import Array, reference

DIVISIONS = ("div", "floor_div", "fmod", "remainder")
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
    "floor_div": np.floor_divide,
    "atan2": np.arctan2,
    "logaddexp": np.logaddexp,
}


def _of_integers(name: str, function: Callable[..., Any], x: Array, y: Array) -> Array:
    """In 64 bits, then as the inputs are. InputError where that holds no result."""
    if name in DIVISIONS and (y == 0).any():
        raise InputError("an integer is divided by zero")
    if name == "pow" and (y < 0).any():
        raise InputError("an integer to a negative power")
    wide = [v.astype(np.int64) for v in (x, y)]
    if name == "div":  # towards zero, as C has it
        made = np.floor_divide(np.abs(wide[0]), np.abs(wide[1])) * np.sign(wide[0]) * np.sign(wide[1])
    else:
        made = np.asarray(function(*wide))
    edge = np.iinfo(x.dtype)
    wrong = (made < edge.min) | (made > edge.max)
    if wrong.any():
        raise InputError(f"the result {made[wrong].flat[0]} does not fit {x.dtype}")
    return made.astype(x.dtype)


def _as_numpy(name: str) -> None:
    function = SAME[name]

    @reference(name)
    def apply(x: Array, y: Array) -> Array:
        if x.dtype.kind in "iu":
            return _of_integers(name, function, x, y)
        return np.asarray(function(x, y))  # NumPy makes a scalar of two arrays of rank 0

    apply.__name__, apply.__doc__ = name, f"``numpy.{function.__name__}``, broadcast."


for _name in SAME:
    _as_numpy(_name)


@reference("prelu")
def prelu(x: Array, y: Array) -> Array:
    """``x`` if ``x > 0`` else ``y * x``, arXiv 1502.01852."""
    return np.asarray(np.where(x > 0, x, x * y))
