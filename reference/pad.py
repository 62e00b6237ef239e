"""Padding, as an index for every output element of an axis."""

import numpy as np

from bslite.reference.registry import Array, reference


@reference("pad")
def pad(x: Array, *, pads: tuple[int, ...], value: float, mode: str) -> Array:
    """``y[i] = x[i - before]`` along each axis; ``pads`` is (before_0, ..., after_0, ...), as in ONNX.

    What lies outside x is ``value``, x's nearest element (edge), that as far from the outermost element
    inside (reflect), or the one a whole number of lengths away (wrap).
    """
    y = x
    for axis, (before, after) in enumerate(zip(pads[: x.ndim], pads[x.ndim :], strict=True)):
        size = x.shape[axis]
        i = np.arange(-before, size + after)
        if mode == "reflect":
            i = np.abs(i)
            i = np.minimum(i, 2 * (size - 1) - i)
        elif mode == "wrap":
            i = i % size
        outside = (i < 0) | (i >= size)
        if not size and mode == "constant":
            y = np.full((*y.shape[:axis], len(i), *y.shape[axis + 1 :]), value, y.dtype)
            continue
        y = y.take(i.clip(0, size - 1), axis)
        if mode == "constant":
            y[(slice(None),) * axis + (outside,)] = value
    return y.copy()
