"""Functions of two values, broadcast as NumPy does. NaN in either, NaN out, except for ``pow`` (C99)."""

import functools
from typing import Any

import numpy as np

from bslite.errors import InputError
from bslite.reference.registry import Array, in_dtype, reference

EXTREMES = ("maximum", "minimum")
DIVISIONS = ("div", "floor_div", "fmod", "remainder")
#: op -> NumPy's function of the same meaning
SAME: dict[str, Any] = {
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


def _of_integers(name: str, x: Array, y: Array) -> Array:
    """In 64 bits, then as the inputs are. InputError where that holds no result."""
    if name in DIVISIONS and (y == 0).any():
        raise InputError("an integer is divided by zero")
    if name == "pow" and (y < 0).any():
        raise InputError("an integer to a negative power")
    wide = [v.astype(np.int64) for v in (x, y)]
    if name == "div":  # towards zero, as C has it
        made = np.floor_divide(np.abs(wide[0]), np.abs(wide[1])) * np.sign(wide[0]) * np.sign(wide[1])
    else:
        made = np.asarray(SAME[name](*wide))
    return in_dtype(x.dtype, made)


def _as_numpy(name: str, x: Array, y: Array) -> Array:
    """NumPy's function, broadcast."""
    if x.dtype.kind in "iu":
        return _of_integers(name, x, y)
    return np.asarray(SAME[name](x, y))  # NumPy makes a scalar of two arrays of rank 0


def _extreme(name: str, x: Array, y: Array, *, first: bool) -> Array:
    """``first`` is about the gradients."""
    return _as_numpy(name, x, y)


for _name in SAME:
    reference(_name)(functools.partial(_extreme if _name in EXTREMES else _as_numpy, _name))


@reference("prelu")
def prelu(x: Array, y: Array) -> Array:
    """``x`` if ``x > 0`` else ``y * x``, arXiv 1502.01852."""
    return np.asarray(np.where(x > 0, x, x * y))
