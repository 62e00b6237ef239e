"""Resizing one axis after the other: positions, then the elements around them and their weights."""

import numpy as np

from bslite.reference.registry import Array, reference


def positions(have: int, out: int, scale: float, coordinates: str, roi: tuple[float, float]) -> Array:
    """Where in the input each output index lies; ONNX ``Resize``, coordinate_transformation_mode.

    ``out`` is rounded down; the unrounded length ``have * scale`` is what the modes of corners go by.
    """
    i, length = np.arange(out), have * scale
    half_pixel = (i + 0.5) / scale - 0.5
    if coordinates == "asymmetric":
        return i / scale
    if coordinates == "align_corners":
        return np.zeros(1) if length == 1 else i * (have - 1) / (length - 1)
    if coordinates == "pytorch_half_pixel" and length == 1:
        return np.zeros(1)
    if coordinates == "half_pixel_symmetric":
        return have / 2 * (1 - out / length) + half_pixel
    if coordinates == "tf_crop_and_resize":
        start, end = roi
        if length == 1:
            return np.array([(start + end) * (have - 1) / 2])
        return start * (have - 1) + i * (end - start) * (have - 1) / (length - 1)
    return half_pixel


def rounded(position: Array, rounding: str) -> Array:
    """The nearest whole position."""
    if rounding == "round_prefer_floor":
        return np.ceil(position - 0.5)
    if rounding == "round_prefer_ceil":
        return np.floor(position + 0.5)
    return np.floor(position) if rounding == "floor" else np.ceil(position)


def kernel(distance: Array, mode: str, a: float) -> Array:
    """Weight of an element at this distance: the triangle, or Keys' cubic (1981, eq. 4, with its a)."""
    d = np.abs(distance)
    if mode == "linear":
        return np.maximum(1 - d, 0)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d >= 2, 0, far))


def along(
    x: Array, axis: int, out: int, scale: float, mode: str, roi: tuple[float, float], **options: object
) -> Array:
    """x resized along one axis."""
    have = x.shape[axis]
    position = positions(have, out, scale, str(options["coordinates"]), roi)
    if mode == "nearest":
        return x.take(rounded(position, str(options["rounding"])).astype(int).clip(0, have - 1), axis)
    narrow = min(scale, 1.0) if options["antialias"] else 1.0
    reach = 1 if mode == "linear" else 2
    first = int(np.floor(-reach / narrow)) + 1
    at = np.maximum(position, 0) if mode == "linear" and narrow == 1.0 else position
    base = np.floor(at)
    y = np.zeros(1, x.dtype)
    index = [base + k for k in range(first, 2 - first)]
    weights = [kernel((i - at) * narrow, mode, float(options["cubic_a"])) for i in index]  # type: ignore[arg-type]
    if options["exclude_outside"]:
        weights = [np.where((i >= 0) & (i < have), w, 0) for i, w in zip(index, weights, strict=True)]
    total = sum(weights) if options["exclude_outside"] or narrow < 1 else np.ones(1)
    for i, w in zip(index, weights, strict=True):
        factor = (w / total).reshape([-1 if d == axis else 1 for d in range(x.ndim)])
        y = y + factor.astype(x.dtype) * x.take(i.astype(int).clip(0, have - 1), axis)
    return y


@reference("resize")
def resize(
    x: Array,
    *,
    mode: str,
    axes: tuple[int, ...],
    sizes: tuple[int, ...] | None,
    scales: tuple[float, ...] | None,
    coordinates: str,
    rounding: str,
    cubic_a: float,
    exclude_outside: bool,
    antialias: bool,
    roi: tuple[float, ...] | None,
    extrapolation: float,
) -> Array:
    """ONNX ``Resize`` along ``axes``; weights in float64, then in x's precision."""
    y, beyond = x, []
    for i, axis in enumerate(axes):
        axis %= x.ndim
        have = x.shape[axis]
        out = sizes[i] if sizes else int(have * scales[i]) if scales else have
        scale = scales[i] if scales else out / have
        part = (roi[i], roi[i + len(axes)]) if roi else (0.0, 1.0)
        y = along(
            y, axis, out, scale, mode, part,
            coordinates=coordinates, rounding=rounding, cubic_a=cubic_a, exclude_outside=exclude_outside,
            antialias=antialias,
        )  # fmt: skip
        if roi:
            at = positions(have, out, scale, coordinates, part)
            beyond.append((axis, (at < 0) | (at > have - 1)))
    for axis, outside in beyond:
        y[(slice(None),) * axis + (outside,)] = extrapolation
    return y
