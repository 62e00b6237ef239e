"""The CPU's recipes for the weights of convolutions over planes: one number for each output of a tile."""

from collections.abc import Sequence

import numpy as np

from bslite.engines.common.recipes import Array, recipe


@recipe("plane_filters")
def _plane_filters(params: Sequence[Array], groups: int, tiles: Sequence[int]) -> Array:
    """``[K, C/groups, ...taps]`` as ``[groups][tiles][taps][C/groups][outputs of a tile]``."""
    w = params[0].reshape(groups, -1, *params[0].shape[1:])
    return _tiles(np.moveaxis(w, 2, -1), tiles)


@recipe("plane_filters_by_row")
def _by_row(params: Sequence[Array], groups: int, tiles: Sequence[int]) -> Array:
    """The same with columns of taps after the channels."""
    w = params[0].reshape(groups, -1, *params[0].shape[1:])
    return _tiles(np.moveaxis(w, 2, -2), tiles)


def _tiles(w: Array, tiles: Sequence[int]) -> Array:
    """Weights ``[groups, outputs, ...terms]`` tile by tile, outputs last."""
    w = w.reshape(*w.shape[:2], -1)
    each = np.split(w, np.cumsum(tiles)[:-1], axis=1)
    return np.concatenate([part.swapaxes(1, 2).reshape(len(w), -1) for part in each], axis=1)
