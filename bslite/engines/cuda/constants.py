"""The GPU's recipes: how weights lie for its kernels. Those of all engines: `bslite.engines.recipes`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bslite.engines.recipes import Array, phase, recipe


@recipe("cells")
def _cells(params: Sequence[Array], values: Sequence[int]) -> Array:
    """A table of integers."""
    return np.asarray(values, np.int32)


@recipe("numbers")
def _numbers(params: Sequence[Array], values: Sequence[float]) -> Array:
    """A table of floats."""
    return np.asarray(values, np.float32)


@recipe("filters")
def _filters(params: Sequence[Array]) -> Array:
    """``[K, C/groups, taps...]`` channels-last: ``[K, taps..., C/groups]``."""
    return np.ascontiguousarray(np.moveaxis(params[0], 1, -1))


@recipe("transposed_filters")
def _transposed_filters(
    params: Sequence[Array], groups: int, first: Sequence[int], step: Sequence[int], taps: Sequence[int]
) -> Array:
    """One phase of a transposed convolution, channels-last."""
    return _filters([phase(params[0], groups, first, step, taps)])
