"""Recipes of the GPU: how weights lie for its kernels. `engines.common.recipes` has those of all engines."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.engines.common.recipes import Array, phase, recipe
from bslite.passes import batch_norm_scale_shift


@recipe("cells")
def _cells(params: Sequence[Array], values: Sequence[int]) -> Array:
    """A table of integers."""
    return np.asarray(values, np.int32)


@recipe("channel_rows")
def _channel_rows(params: Sequence[Array], parts: Sequence[Sequence[Any]]) -> Array:
    """Rows of numbers per channel for the stages of a stack, in their order.

    A stage ``("taps", 1 or 2)`` takes a depthwise weight and perhaps a bias, a stage ``("affine", number of
    params, roles, eps)`` a batch norm.
    """
    rows: list[Array] = []
    taken = iter(params)
    for kind, count, *more in parts:
        mine = [next(taken) for _ in range(count)]
        if kind == "affine":
            roles, eps = more
            rows += batch_norm_scale_shift(dict(zip(roles, mine, strict=True)), eps)
        else:
            rows += [*mine[0].reshape(len(mine[0]), -1).T, *mine[1:]]
    return np.stack(rows).astype(np.float32)


@recipe("taps_first")
def _taps_first(params: Sequence[Array]) -> Array:
    """A depthwise weight ``[K, 1, taps...]`` as ``[taps, K]``."""
    return np.ascontiguousarray(params[0].reshape(len(params[0]), -1).T)


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
