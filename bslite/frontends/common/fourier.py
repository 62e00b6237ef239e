"""Fourier transforms of whole axes, and short-time ones. Complex numbers are pairs along a last axis."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite.frontends.common.moves import reshape
from bslite.frontends.common.site import Site
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.ops.fourier import too_long
from bslite.spec import Array


@dataclass(frozen=True, eq=False)
class Transform:
    """``y[k] = scale * sum_n x[n] exp(-2 pi i n k / length)``, the inverse with the other sign.

    Zeros are appended to x, or its last points cut, until they are ``length``. ``onesided``: of y only the
    first half. ``half``: x is such a half, and y is real. ``taper``: points of x are times these numbers.
    """

    length: int
    inverse: bool = False
    scale: float = 1.0
    onesided: bool = False
    half: bool = False
    taper: Array | None = None


def transformed(s: Site, x: Any, axis: int, how: Transform, *, paired: bool, real: bool = False) -> Any:
    """``x`` transformed along ``axis``, which counts from the front. ``paired``: x is of complex numbers, as
    is the result unless only its ``real`` part is wanted.
    """
    if not isinstance(x.shape[axis], int):
        raise Varies("along an axis whose size is free")
    half, real = how.length // 2 + 1, real or how.half
    if how.length < 1:
        raise Unsupported(f"of {how.length} points")
    if refused := too_long(how.length):
        raise Unsupported(f"of {refused}")
    x = _cut(s, x, axis, half if how.half else how.length)
    if how.half and not paired:
        x, paired = _as_pairs(s, x), True
    source = "half" if how.half else "complex" if paired else "real"
    around = x.shape[:-1] if paired else x.shape
    made = half if how.onesided else how.length
    params = {}
    if how.taper is not None:
        params["window"] = s.const(how.taper.astype(np.float32), "window")
    return s.emit(
        "fourier", x, inner=(*around[:axis], made, *around[axis + 1 :], *(() if real else (2,))),
        params=params, axis=axis, length=how.length, source=source, inverse=how.inverse,
        onesided=how.onesided, real=real, scale=how.scale,
    )  # fmt: skip


def short_time(s: Site, x: Any, how: Transform, hop: int, frames: Any) -> Any:
    """Transforms ``[N, bins, frames, 2]`` of the windows of ``x [N, L]``, ``hop`` points apart."""
    batch, length = x.shape
    lines = reshape(s, x, (batch, 1, 1, length), last=False)
    size = (batch, how.length, frames)
    cut = s.emit("unfold", lines, inner=size, kernel=(1, how.length), stride=(1, hop))
    return transformed(s, cut, 1, how, paired=False)


def from_short_time(s: Site, x: Any, how: Transform, hop: int, taper: Array) -> Any:
    """The windows whose transforms are ``x [N, bins, frames, 2]``, times ``taper``, added up where they lie:
    ``[N, 1, how.length + hop * (frames - 1)]``.
    """
    batch, bins, frames, _ = x.shape
    x = s.emit("permute", x, inner=(batch, frames, bins, 2), order=(0, 2, 1, 3))
    lines = transformed(s, x, 2, how, paired=True)
    lines = s.emit("mul", lines, s.const(taper.astype(np.float32), "window"), inner=lines.shape)
    columns = s.emit("permute", lines, inner=(batch, how.length, frames), order=(0, 2, 1))
    size = how.length + hop * (frames - 1)
    return s.emit(
        "fold", columns, inner=(batch, 1, size),
        output_size=(size,), kernel=(how.length,), stride=(hop,), padding=(0, 0), dilation=(1,),
    )  # fmt: skip


def centred(taper: Array, length: int) -> Array:
    """A window with zeros on both sides, up to a length."""
    before = (length - taper.size) // 2
    return np.pad(taper.astype(np.float64), (before, length - taper.size - before))


def _cut(s: Site, x: Any, axis: int, most: int) -> Any:
    """The first ``most`` positions along an axis."""
    if x.shape[axis] <= most:
        return x
    shape = (*x.shape[:axis], most, *x.shape[axis + 1 :])
    return s.emit("slice", x, inner=shape, axis=axis, start=0, stop=most)


def _as_pairs(s: Site, x: Any) -> Any:
    """Real numbers as complex ones."""
    x = reshape(s, x, (*x.shape, 1), last=False)
    pads = (0,) * (2 * len(x.shape) - 1)
    return s.emit("pad", x, inner=(*x.shape[:-1], 2), pads=(*pads, 1), value=0.0, mode="constant")
