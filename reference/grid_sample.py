"""Sampling an image or volume at positions: where these lie, what is around them, and with which weights."""

import itertools

import numpy as np

from bslite.reference.registry import Array, reference
from bslite.reference.resize import kernel


def padded(at: Array, size: int, padding: str, align_corners: bool, axes: int) -> Array:
    """Positions moved to where the image is; torch's rules (``GridSampler.h``), those for NaN included."""
    if padding == "zeros":
        return at
    if padding == "reflection":
        least, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
        away = np.abs(at - least)
        rest, turns = (np.fmod(away, span), np.floor(away / span)) if span else (away * 0, away * 0)
        at = np.where(turns % 2 == 0, rest, span - rest) + least
    missing = 0.0 if axes == 2 else size - 1.0
    return np.where(np.isnan(at), missing, np.clip(at, 0, size - 1))


@reference("grid_sample")
def grid_sample(x: Array, grid: Array, *, mode: str, padding: str, align_corners: bool) -> Array:
    """``sum of w(index - position) * x[index]`` over the indices around the position (torch ``grid_sample``,
    ONNX ``GridSample``). Positions and weights in float64, the weights then in x's precision.
    """
    axes, sizes, wide = x.ndim - 2, x.shape[2:], grid.astype(np.float64)
    around = []  # for each axis: the indices and weights around every position
    with np.errstate(invalid="ignore"):
        for d, size in enumerate(sizes):
            g = wide[..., axes - 1 - d]
            at = (g + 1) / 2 * (size - 1) if align_corners else ((g + 1) * size - 1) / 2
            if mode == "cubic":
                near = [np.floor(at) + k for k in (-1, 0, 1, 2)]
                weights = [kernel(at - i, "cubic", -0.75) for i in near]
                near = [padded(i, size, padding, align_corners, axes) for i in near]
            else:
                at = padded(at, size, padding, align_corners, axes)
                near = [np.rint(at)] if mode == "nearest" else [np.floor(at), np.floor(at) + 1]
                weights = [1.0 - np.abs(at - i) for i in near]
            around.append(list(zip(near, weights, strict=True)))
        y = np.zeros((*grid.shape[:-1], x.shape[1]), x.dtype)
        last = np.moveaxis(x, 1, -1)
        image = np.arange(x.shape[0]).reshape([-1, *[1] * axes])
        for taps in itertools.product(*around):
            inside = np.ones(grid.shape[:-1], bool)
            weight = np.ones(grid.shape[:-1])
            for (index, w), size in zip(taps, sizes, strict=True):
                inside &= (index >= 0) & (index < size)
                weight = weight * w
            places = (image, *(np.where(inside, index, 0).astype(np.int64) for index, _ in taps))
            value = np.where(inside[..., None], last[places], 0)
            if mode != "nearest":
                value = value * weight.astype(x.dtype)[..., None]
                if axes == 3:
                    value = np.where(inside[..., None], value, 0)
            y = y + value
    return np.moveaxis(y, -1, 1)
