"""How the data a plan names is derived from a model's parameters: one table of recipes for all engines.

Here are those that every engine has; each adds its own layouts (``engines/*/constants.py``).
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bslite.engines.common.cells import to_cells
from bslite.passes import batch_norm_scale_shift
from bslite.plan import Const
from bslite.registry import Registry
from bslite.spec import Array

RECIPES: Registry[Callable[..., Array]] = Registry("recipe")
recipe = RECIPES.register  # a decorator: ``f(params, **args) -> array`` under a name


def data_of(const: Const, params: Mapping[str, Array]) -> Array:
    """What one constant holds, in the recipe's shape and dtype."""
    return RECIPES[const.recipe]([params[k] for k in const.keys], **dict(const.args))


@recipe("param")
def _param(params: Sequence[Array]) -> Array:
    return np.ascontiguousarray(to_cells(params[0], "a constant of the model"))


@recipe("integer")
def _integer(params: Sequence[Array], value: int) -> Array:
    return np.array(value, np.int32)


@recipe("batch_norm")
def _batch_norm(params: Sequence[Array], roles: Sequence[str], part: str, eps: float) -> Array:
    scale, shift = batch_norm_scale_shift(dict(zip(roles, params, strict=True)), eps)
    return (scale if part == "scale" else shift).astype(np.float32)


def phase(w: Array, groups: int, first: Sequence[int], step: Sequence[int], taps: Sequence[int]) -> Array:
    """The filters of one phase of a transposed convolution, as a convolution has them.

    ``w`` is ``[C, K/groups, ...]``, the result ``[K, C/groups, ...]``: along each axis ``taps`` taps from
    ``first`` on, ``step`` apart.
    """
    c, kg, *kernel = w.shape
    w = w.reshape(groups, c // groups, kg, *(1,) * (3 - len(kernel)), *kernel).swapaxes(1, 2)
    for axis, (start, by, count) in enumerate(zip(first, step, taps, strict=True)):
        w = w.take([start + i * by for i in range(count)], 3 + axis)
    return w.reshape(groups * kg, c // groups, *taps)
