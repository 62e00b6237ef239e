"""Windows of images as columns and back, tap by tap of the window."""

import itertools
import math
from typing import Any

import numpy as np

from bslite.reference.conv import Sizes, every, inner, windows
from bslite.reference.registry import Array, reference


def taps(kernel: Sizes, stride: Sizes, dilation: Sizes, count: Sizes) -> list[Any]:
    """For each element of a window, in row-major order, its places in the padded image, in all windows."""
    return [
        inner(every(i * d, s, n) for i, d, s, n in zip(tap, dilation, stride, count, strict=True))
        for tap in itertools.product(*map(range, kernel))
    ]


@reference("unfold")
def unfold(x: Array, *, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> Array:
    """``y[n, (c, i, j), (p, q)] = x[n, c, p*s + i*d, q*s + j*d]``, x padded with zeros (torch ``Unfold``)."""
    top, left, bottom, right = padding
    wide = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    count = windows(wide.shape[2:], kernel, stride, dilation)
    columns = [wide[at] for at in taps(kernel, stride, dilation, count)]
    return np.stack(columns, 2).reshape(x.shape[0], -1, math.prod(count))


@reference("fold")
def fold(
    x: Array, *, output_size: Sizes, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes
) -> Array:
    """The sum of all columns, each where its window lies (torch ``Fold``, ONNX ``Col2Im``)."""
    axes = len(kernel)
    before, after = padding[:axes], padding[axes:]
    wide = [a + size + z for a, size, z in zip(before, output_size, after, strict=True)]
    count = windows(wide, kernel, stride, dilation)
    columns = x.reshape(x.shape[0], -1, math.prod(kernel), *count)
    y = np.zeros((*columns.shape[:2], *wide), x.dtype)
    for i, at in enumerate(taps(kernel, stride, dilation, count)):
        y[at] += columns[:, :, i]
    inside: Any = (..., *(slice(a, a + size) for a, size in zip(before, output_size, strict=True)))
    return np.ascontiguousarray(y[inside])
