"""Operators that read images at places which are values: regions of interest, deformable convolution.

Each is one gather of the pixels around all places and sums in NumPy; work and memory grow with the result.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.errors import InputError, SpecError
from bslite.onnx.host.node import host_op
from bslite.spec import Array

Ints = Sequence[int]


def _bounded(at: Array, size: int) -> tuple[Array, Array, Array, Array]:
    """Coordinates of regions -> lower and upper pixel, their weights: zero beyond one pixel outside."""
    there = (at >= -1) & (at <= size)
    at = np.maximum(at, 0)
    low = np.minimum(at.astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    part = np.where(low >= size - 1, 0, at - low)
    return low, high, (1 - part) * there, part * there


@host_op("RoiAlign")
def roi_align(
    x: Array, rois: Array, batch: Array, *, coordinate_transformation_mode: str = "output_half_pixel",
    mode: str, output_height: int, output_width: int, sampling_ratio: int, spatial_scale: float,
) -> Array:  # fmt: skip
    """[regions, C, output_height, output_width]: in each bin the mean, or largest, of points within it.

    A point is read by bilinear interpolation. ``rois`` [regions, 4] are x1 y1 x2 y2 in units of
    ``1 / spatial_scale`` pixels, ``batch`` says of which image.
    """
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 4 or batch.shape != rois.shape[:1]:
        raise InputError(f"{list(x.shape)}, regions {list(rois.shape)} of images {list(batch.shape)}")
    if mode not in ("avg", "max"):
        raise SpecError(f"mode {mode!r}, expected avg or max")
    if (wrong := batch[(batch < 0) | (batch >= len(x))]).size:
        raise InputError(f"a region of image {int(wrong[0])}, there are {len(x)}")
    half = coordinate_transformation_mode == "half_pixel"
    start = rois[:, :2] * np.asarray(spatial_scale, x.dtype) - np.asarray(0.5 * half, x.dtype)
    end = rois[:, 2:] * np.asarray(spatial_scale, x.dtype) - np.asarray(0.5 * half, x.dtype)
    extent = end - start if half else np.maximum(end - start, 1)
    bins = np.array([output_width, output_height])
    made = np.zeros((len(rois), x.shape[1], output_height, output_width), x.dtype)
    for r in range(len(rois)):
        size = extent[r] / bins.astype(x.dtype)
        points = [sampling_ratio or int(np.ceil(s)) for s in size]
        if min(points) < 1:
            continue  # a region without a point within it
        along = [
            start[r, a] + (np.arange(bins[a] * points[a]) + np.asarray(0.5, x.dtype)) * (size[a] / points[a])
            for a in (0, 1)
        ]
        left, right, lw, rw = _bounded(along[0].astype(x.dtype), x.shape[3])
        top, low, tw, bw = _bounded(along[1].astype(x.dtype), x.shape[2])
        image = x[int(batch[r])]
        corners = [
            image[:, rows[:, None], columns] * (a[:, None] * b)
            for rows, a in ((top, tw), (low, bw)) for columns, b in ((left, lw), (right, rw))
        ]  # fmt: skip
        shape = (x.shape[1], output_height, points[1], output_width, points[0])
        if mode == "avg":
            total = (corners[0] + corners[1]) + (corners[2] + corners[3])
            made[r] = total.reshape(shape).mean((2, 4), dtype=np.float64)
        else:  # of the four weighed pixels of every point
            made[r] = np.maximum.reduce(corners).reshape(shape).max((2, 4))
    return made


@host_op("MaxRoiPool")
def max_roi_pool(x: Array, rois: Array, *, pooled_shape: Ints, spatial_scale: float) -> Array:
    """[regions, C, *pooled_shape]: the largest pixel of each bin. ``rois`` [regions, 5]: image, corners."""
    if x.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5 or len(pooled_shape) != 2:
        raise InputError(f"{list(x.shape)}, regions {list(rois.shape)}, bins {list(pooled_shape)}")
    made = np.zeros((len(rois), x.shape[1], *pooled_shape), x.dtype)
    limits = np.array(x.shape[:1:-1])
    for r, (image, *corners) in enumerate(rois):
        if not 0 <= image < len(x):
            raise InputError(f"a region of image {int(image)}, there are {len(x)}")
        at = np.asarray(corners) * np.asarray(spatial_scale, x.dtype)
        edges = np.trunc(at + np.copysign(0.5, at)).astype(np.int64)  # C's round
        start, end = edges[:2], edges[2:]
        size = np.maximum(end - start + 1, 1)
        for i in range(pooled_shape[0]):
            for j in range(pooled_shape[1]):
                place, bins = np.array([j, i]), np.array(pooled_shape[::-1])
                low = np.clip(np.floor(place * size / bins).astype(np.int64) + start, 0, limits)
                high = np.clip(np.ceil((place + 1) * size / bins).astype(np.int64) + start, 0, limits)
                if (high > low).all():
                    inside = x[int(image), :, low[1] : high[1], low[0] : high[0]]
                    made[r, :, i, j] = inside.max((1, 2))
    return made


@host_op("DeformConv")
def deform_conv(
    x: Array, w: Array, offset: Array, bias: Array | None = None, mask: Array | None = None, *,
    dilations: Ints | None, group: int, kernel_shape: Ints | None, offset_group: int, pads: Ints | None,
    strides: Ints | None,
) -> Array:  # fmt: skip
    """A convolution of images whose taps are read at places moved by ``offset``, weighed by ``mask``.

    ``offset`` [N, offset_group * taps * 2, OH, OW]: rows, then columns. Outside of the image is zero.
    """
    if x.ndim != 4 or w.ndim != 4:
        raise InputError(
            f"{list(x.shape)} and filters {list(w.shape)}: bslite deforms convolutions of images"
        )
    (n, c, height, width), (kh, kw) = x.shape, w.shape[2:]
    (sh, sw), (dh, dw), (top, left, bottom, right) = strides or (1, 1), dilations or (1, 1), pads or (0,) * 4
    oh = (height + top + bottom - dh * (kh - 1) - 1) // sh + 1
    ow = (width + left + right - dw * (kw - 1) - 1) // sw + 1
    taps, og = kh * kw, offset_group
    if offset.shape != (n, og * taps * 2, oh, ow) or c % og or c != w.shape[1] * group:
        raise InputError(f"{list(x.shape)}, filters {list(w.shape)} and offsets {list(offset.shape)}")
    moved = offset.reshape(n, og, kh, kw, 2, oh, ow)
    rows = np.arange(kh)[:, None, None, None] * dh + np.arange(oh)[:, None] * sh - top + moved[:, :, :, :, 0]
    columns = np.arange(kw)[:, None, None] * dw + np.arange(ow) * sw - left + moved[:, :, :, :, 1]
    weights = np.ones_like(moved[:, :, :, :, 0]) if mask is None else mask.reshape(n, og, kh, kw, oh, ow)
    rows, columns = rows.astype(x.dtype), columns.astype(x.dtype)
    low, before = np.floor(rows).astype(np.int64), np.floor(columns).astype(np.int64)
    down, across = rows - low, columns - before
    images = x.reshape(n, og, c // og, height * width)
    made = np.zeros((n, og, c // og, taps * oh * ow), x.dtype)
    for i, part in ((low, 1 - down), (low + 1, down)):
        for j, share in ((before, 1 - across), (before + 1, across)):
            there = (i >= 0) & (i < height) & (j >= 0) & (j < width)
            place = np.where(there, i * width + j, 0).reshape(n, og, 1, -1)
            weight = (np.where(there, part * share, 0) * weights).reshape(n, og, 1, -1)
            made += np.take_along_axis(images, place, 3) * weight
    patches = made.reshape(n, group, c // group * taps, oh * ow)
    filters = w.reshape(group, len(w) // group, -1)
    y = np.matmul(filters, patches).reshape(n, len(w), oh, ow)
    return y if bias is None else y + bias[:, None, None]


@host_op("MaxUnpool")
def max_unpool(
    x: Array, indices: Array, output_shape: Array | None = None, *, kernel_shape: Ints, pads: Ints | None,
    strides: Ints | None,
) -> Array:  # fmt: skip
    """What a pool took, back at the places it came from; zeros elsewhere, and up to ``output_shape``."""
    axes = len(kernel_shape)
    by, around = strides or (1,) * axes, pads or (0,) * 2 * axes
    sizes = [
        (d - 1) * s - around[a] - around[a + axes] + k
        for a, (d, s, k) in enumerate(zip(x.shape[2:], by, kernel_shape, strict=True))
    ]
    shape = (*x.shape[:2], *sizes)
    whole = np.zeros(int(np.prod(shape)), x.dtype)
    if indices.shape != x.shape or (indices.size and not 0 <= indices.min() <= indices.max() < whole.size):
        raise InputError(f"{list(x.shape)} to places {list(indices.shape)} of {list(shape)}")
    whole[indices.reshape(-1)] = x.reshape(-1)
    if output_shape is None:
        return whole.reshape(shape)
    wanted = tuple(int(d) for d in output_shape)
    if len(wanted) != len(shape) or any(w < s for w, s in zip(wanted, shape, strict=True)):
        raise InputError(f"output_shape {list(wanted)} for {list(shape)}")
    larger = np.zeros(wanted, x.dtype)
    larger[tuple(slice(d) for d in shape)] = whole.reshape(shape)
    return larger


@host_op("GlobalLpPool")
def global_lp_pool(x: Array, *, p: Any) -> Array:
    """``(sum of |x|**p over each image) ** (1/p)``."""
    total = (np.abs(x.astype(np.float64)) ** p).sum(tuple(range(2, x.ndim)), keepdims=True)
    return np.asarray((total ** (1 / p)).astype(x.dtype))
