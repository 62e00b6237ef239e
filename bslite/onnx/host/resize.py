"""Resize of types that the engine does not resize: whole numbers, and float64.

ONNX leaves open how a mean of whole numbers is rounded. It is cut here as onnxruntime does it: sums of
float32, term by term, and for bytes that lie channels last sums of whole 1024ths of both weights.
https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/providers/cpu/tensor/upsample.cc
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bslite.errors import SpecError, UnsupportedError
from bslite.frontends.onnx.ops.moves import axes_of
from bslite.frontends.onnx.ops.resize import in_proportion
from bslite.frontends.onnx.values import fixed
from bslite.onnx.host.node import host_op
from bslite.reference import FUNCTIONS
from bslite.spec import Array

SINGLE = np.float32
BITS = 10  # of a weight among whole numbers


class Taps(NamedTuple):
    """The two elements around each position along an axis, and how far each lies from it."""

    first: Array
    second: Array
    beyond_first: Array
    before_second: Array


@host_op("Resize", "Upsample", last=True)
def resize(
    x: Array, roi: Array | None = None, scales: Any = None, sizes: Array | None = None, *,
    opset: int, mode: str, coordinate_transformation_mode: str = "asymmetric", cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0, extrapolation_value: float = 0.0, nearest_mode: str = "floor",
    antialias: int = 0, axes: Sequence[int] | None = None, keep_aspect_ratio_policy: str = "stretch",
) -> Array:  # fmt: skip
    """``x`` by ``scales`` or to ``sizes`` along ``axes``."""
    if opset < 11:
        roi, scales = None, scales if roi is None else roi
    over = axes_of(range(x.ndim) if axes is None else axes, x.ndim)
    by = None if scales is None else np.asarray(scales, np.float64).reshape(-1).tolist() or None
    if by is None:
        if sizes is None:
            raise SpecError("it has neither scales nor sizes")
        to = [int(n) for n in sizes.reshape(-1)]
        if keep_aspect_ratio_policy != "stretch" and len(to) == len(over):
            to = [
                fixed(n, "a size")
                for n in in_proportion([x.shape[a] for a in over], to, keep_aspect_ratio_policy)
            ]
    else:
        to = [math.floor(x.shape[a] * s) for a, s in zip(over, by, strict=False)]
    if len(to) != len(over) or (by is not None and len(by) != len(over)):
        raise SpecError(f"it has {len(to if by is None else by)} scales or sizes for {len(over)} axes")
    out = list(x.shape)
    for a, n in zip(over, to, strict=True):
        out[a] = n
    if 0 in out:
        return np.zeros(out, x.dtype)
    crop = coordinate_transformation_mode == "tf_crop_and_resize"
    if x.dtype.kind in "iu" and mode != "nearest":
        if mode != "linear" or antialias or crop:
            how = f"mode {mode!r}" + " with antialias" * bool(antialias) + " of a crop" * crop
            raise UnsupportedError(f"{how} of {x.dtype}")
        scale = [1.0] * x.ndim
        for a, n in zip(over, to, strict=True):
            scale[a] = float(SINGLE(n) / SINGLE(x.shape[a]))
        for a, s in zip(over, by or (), strict=False):
            scale[a] = s
        return linear(x, out, scale, coordinate_transformation_mode)
    made: Array = FUNCTIONS["resize"](
        x, mode=mode, axes=tuple(over), sizes=tuple(to) if by is None else None,
        scales=None if by is None else tuple(by), coordinates=coordinate_transformation_mode,
        rounding=nearest_mode, cubic_a=cubic_coeff_a, exclude_outside=bool(exclude_outside),
        antialias=bool(antialias), extrapolation=extrapolation_value,
        roi=tuple(float(r) for r in roi.reshape(-1)) if crop and roi is not None else None,
    )  # fmt: skip
    return made.astype(x.dtype, copy=False)


def linear(x: Array, out: Sequence[int], scale: Sequence[float], coordinates: str) -> Array:
    """Whole numbers between the two around each position along each axis, cut towards zero."""
    axes = _axes(scale)
    taps = [_taps(x.shape[a], out[a], scale[a], coordinates) for a in axes]
    last = axes[-1] == x.ndim - 1
    whole = not last and x.dtype.itemsize == 1
    if whole:
        taps = [_in_whole(t) for t in taps]
    wide: Any = np.moveaxis(x, axes, range(-len(axes), 0)).astype(np.int64 if whole else SINGLE)
    made: Any = None
    ends = [(t.before_second, t.beyond_first) for t in taps]
    for ahead in itertools.product((0, 1), repeat=len(axes)):  # the last axis changes first
        weight: Any = 1
        at: tuple[Any, ...] = (...,)
        for i in range(len(axes) - 1, -1, -1):
            across = (-1, *(1,) * (len(axes) - 1 - i))
            weight = ends[i][ahead[i]].reshape(across) * weight
            at = (..., taps[i][ahead[i]].reshape(across), *at[1:])
        term = weight * wide[at]
        made = term if made is None else made + term
    if whole:
        made = np.sign(made) * (np.abs(made) >> 2 * BITS)
    return np.moveaxis(made, range(-len(axes), 0), axes).astype(x.dtype)


def _axes(scale: Sequence[float]) -> list[int]:
    """The axes of an image or volume; UnsupportedError for others."""
    rank = len(scale)
    for spatial in {2: [[0, 1]], 3: [[0, 1, 2]], 4: [[2, 3], [1, 2]], 5: [[2, 3, 4]]}.get(rank, []):
        if all(s == 1 for a, s in enumerate(scale) if a not in spatial):
            return spatial
    raise UnsupportedError(f"mode 'linear' of whole numbers along axes with scales {list(scale)}")


def _taps(have: int, out: int, scale: float, coordinates: str) -> Taps:
    place, by = np.arange(out, dtype=SINGLE), SINGLE(scale)
    half = SINGLE(0.5)
    if scale == 1:
        pass
    elif coordinates == "asymmetric":
        place = place / by
    elif coordinates == "align_corners":
        place = place * SINGLE(have - 1) / SINGLE(out - 1) if out > 1 else np.zeros(1, SINGLE)
    elif coordinates == "pytorch_half_pixel" and out == 1:
        place = np.zeros(1, SINGLE)
    elif coordinates in ("half_pixel", "pytorch_half_pixel"):
        place = (place + half) / by - half
    else:
        raise UnsupportedError(f"coordinates {coordinates!r} of whole numbers")
    place = np.clip(place, SINGLE(0), SINGLE(have - 1))
    first = place.astype(np.int64)
    second = np.minimum(first + 1, have - 1)
    beyond = np.abs(place - first.astype(SINGLE))
    before = np.abs(place - second.astype(SINGLE))
    alone = first == second
    return Taps(first, second, np.where(alone, half, beyond), np.where(alone, half, before))


def _in_whole(taps: Taps) -> Taps:
    """Weights as whole parts, of the position cut to such."""
    one = 1 << BITS
    place = ((taps.first.astype(SINGLE) + taps.beyond_first) * SINGLE(one)).astype(np.int64)
    alone = taps.first == taps.second
    beyond, before = np.abs(place - taps.first * one), np.abs(place - taps.second * one)
    half = one // 2
    return Taps(taps.first, taps.second, np.where(alone, half, beyond), np.where(alone, half, before))
