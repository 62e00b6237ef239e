"""The GPU's recipes: how weights lie for its kernels. Those of all engines: `bslite.engines.recipes`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bslite.engines.recipes import Array, recipe


@recipe("cells")
def _cells(params: Sequence[Array], values: Sequence[int]) -> Array:
    """A table of integers."""
    return np.asarray(values, np.int32)


@recipe("numbers")
def _numbers(params: Sequence[Array], values: Sequence[float]) -> Array:
    """A table of floats."""
    return np.asarray(values, np.float32)
