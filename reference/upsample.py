"""Interpolation, one axis after the other.

Source positions are computed in the precision of the image, as torch does: a position that falls on the
border between two pixels may be rounded to the other one in the other precision.
"""

from __future__ import annotations

import numpy as np

from bslite.reference.registry import Array, reference


def nearest(x: Array, axis: int, out: int, ratio: Array) -> Array:
    """Output i is input ``floor(i * ratio)``, at most the last."""
    source = np.floor(np.arange(out, dtype=x.dtype) * ratio).astype(int)
    return x.take(source.clip(max=x.shape[axis] - 1), axis)


def linear(x: Array, axis: int, position: Array) -> Array:
    """Output i is ``(1 - f) * x[j] + f * x[j + 1]``, position[i] = j + f; beyond the last pixel, the last."""
    size = x.shape[axis]
    low = np.floor(position).astype(int).clip(max=size - 1)
    fraction = np.clip(position - low.astype(x.dtype), 0, 1)
    weight = fraction.reshape([-1 if d == axis else 1 for d in range(x.ndim)])
    return (1 - weight) * x.take(low, axis) + weight * x.take((low + 1).clip(max=size - 1), axis)


@reference("upsample")
def upsample(
    x: Array,
    *,
    mode: str,
    size: tuple[int, int] | None,
    scale: tuple[float, float] | None,
    align_corners: bool,
) -> Array:
    """Resize x ``[N, C, H, W]`` to ``size`` or by ``scale``; ``torch.nn.functional.interpolate``.

    With ``r = H/P`` (or ``1/scale``) output row p lies at input row ``floor(p*r)`` (nearest), at
    ``max((p + 1/2)*r - 1/2, 0)`` (bilinear), or at ``p*(H-1)/(P-1)`` (bilinear, align_corners).
    """
    for i, axis in enumerate((2, 3)):
        have = x.shape[axis]
        want = size[i] if size else int(have * scale[i]) if scale else have
        ratio = np.asarray(1 / scale[i] if scale else have / want, x.dtype)
        if mode == "nearest":
            x = nearest(x, axis, want, ratio)
        elif align_corners:
            step = np.asarray((have - 1) / max(want - 1, 1) if want > 1 else 0, x.dtype)
            x = linear(x, axis, np.arange(want, dtype=x.dtype) * step)
        else:
            centre = np.arange(want, dtype=x.dtype) + np.asarray(0.5, x.dtype)
            x = linear(x, axis, np.maximum(centre * ratio - np.asarray(0.5, x.dtype), 0))
    return x
