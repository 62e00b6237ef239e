"""Interpolation, one axis after the other. An axis that keeps its size stays as it is, whatever the scale."""

import numpy as np

from bslite.reference.registry import Array, reference


def nearest(x: Array, axis: int, out: int, scale: float | None) -> Array:
    """Output i is input ``floor(i * ratio)``, at most the last.

    The product is rounded to float32 whatever x is, and an axis exactly doubled takes 1/2 whatever the
    scale: torch's rule for channels-last images, which decides on the border between two pixels.
    """
    have = x.shape[axis]
    ratio = 1 / scale if scale else have / out
    if out in (have, 2 * have):
        ratio = have / out
    source = np.floor(np.arange(out, dtype=np.float32) * np.float32(ratio)).astype(int)
    return x.take(source.clip(max=have - 1), axis)


def bilinear(x: Array, axis: int, out: int, scale: float | None, align_corners: bool) -> Array:
    """Output i is ``(1 - f) * x[j] + f * x[j + 1]``, ``j + f`` its position; beyond the last pixel, that.

    Positions are rounded to the precision of x. An infinite pixel spreads: 0 * Inf is NaN, as in torch.
    """
    have, real = x.shape[axis], x.dtype.type
    if out == have:
        position = np.arange(out, dtype=real)
    elif align_corners:
        position = np.arange(out, dtype=real) * real((have - 1) / (out - 1) if out > 1 else 0)
    else:
        ratio = real(1 / scale if scale else have / out)
        position = np.maximum((np.arange(out, dtype=real) + real(0.5)) * ratio - real(0.5), 0)
    low = np.floor(position).astype(int).clip(max=have - 1)
    high = low if out == have else (low + 1).clip(max=have - 1)
    fraction = np.clip(position - low.astype(real), 0, 1)
    fraction = fraction.reshape([-1 if d == axis else 1 for d in range(x.ndim)])
    return (1 - fraction) * x.take(low, axis) + fraction * x.take(high, axis)


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
        factor = scale[i] if scale else None
        out = size[i] if size else int(x.shape[axis] * factor) if factor else x.shape[axis]
        if mode == "nearest":
            x = nearest(x, axis, out, factor)
        else:
            x = bilinear(x, axis, out, factor, align_corners)
    return x
