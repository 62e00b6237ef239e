"""Discrete Fourier transforms as products with matrices of sines and cosines.

Complex numbers are pairs: a last axis of two holds real and imaginary part. A transform of many points is
taken apart into two of their root (Cooley and Tukey, 1965): a product for each, the turns between them in
the first one's matrices.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite.frontends.common.einsum import einsum
from bslite.frontends.common.moves import reshape
from bslite.frontends.common.site import Site
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.spec import Array

MOST = 2**24  # elements of a transform's matrix: beyond, it is no product that anyone wants
#: Points up to which one product costs no more than two and the moves between them: of 2,048 complex signals
#: (Zen 4, two threads) 64 points take 0.31 ms in one and 0.28 in two, 128 points 1.29 and 0.55.
WHOLE = 64


@dataclass(frozen=True, eq=False)
class Transform:
    """``y[k] = scale * sum_n x[n] exp(-2 pi i n k / length)``, the inverse with the other sign.

    Zeros are appended to x, or its last points cut, until they are ``length``. ``bins``: the first so many of
    y; None: all. ``halved``: x is the first half of a transform of real numbers; what stands for both halves
    counts twice, and only the real part of y means anything. ``taper``: points of x are times these numbers.
    """

    length: int
    inverse: bool = False
    scale: float = 1.0
    bins: int | None = None
    halved: bool = False
    taper: Array | None = None

    @property
    def made(self) -> int:
        """How many numbers it makes."""
        return self.length if self.bins is None else self.bins

    @property
    def read(self) -> int:
        """How many numbers of x count."""
        return self.length // 2 + 1 if self.halved else self.length

    def turned(self, whole: Array) -> Array:
        """``exp(-2 pi i whole / length)``, or with the other sign; complex. What should be zero is, so that
        real numbers have a real mean.
        """
        angles = 2 * np.pi / self.length * (whole % self.length)
        re, im = (np.where(np.abs(wave) < 1e-12, 0.0, wave) for wave in (np.cos(angles), np.sin(angles)))
        return np.asarray((re + 1j * im if self.inverse else re - 1j * im) + 0.0)  # no zero is negative

    def weights(self, points: Array) -> Array:
        """How much ``points`` of x count."""
        twice = self.halved & (points > 0) & (2 * points < self.length)
        tapered = 1.0 if self.taper is None else self.taper[points]
        return np.asarray(self.scale * np.where(twice, 2.0, 1.0) * tapered)


def multiplication(factors: Array) -> Array:
    """Complex ``factors [...]`` as matrices ``[..., 2, 2]``: a pair, a row, times one is the product."""
    re, im = factors.real, factors.imag
    return np.stack([np.stack([re, im], -1), np.stack([-im, re], -1)], -2).astype(np.float32)


def transformed(s: Site, x: Any, axis: int, how: Transform, *, paired: bool, real: bool = False) -> Any:
    """``x`` transformed along ``axis``, which counts from the front. ``paired``: x is of complex numbers, as
    is the result unless only its ``real`` part is wanted.

    Raises Unsupported where the length has no factors and is so large that its matrix would be.
    """
    if not isinstance(x.shape[axis], int):
        raise Varies("along an axis whose size is free")
    if how.length < 1 or how.made < 1:
        raise Unsupported(f"of {how.length} points")
    x = _cut(s, x, axis, how.read)
    work = _in_one if _factor(how.length) == 1 else _in_two
    return work(s, x, axis, how, paired, real)


def _in_one(s: Site, x: Any, axis: int, how: Transform, paired: bool, real: bool) -> Any:
    points, bins = np.arange(x.shape[axis]), np.arange(how.made)
    if points.size * bins.size > MOST:
        raise Unsupported(f"of {how.length} points")
    turns = how.weights(points)[:, None] * how.turned(np.outer(points, bins))
    matrix = _parts(multiplication(turns).transpose(0, 2, 1, 3), paired, real)  # [point, part, bin, part]
    front, back = _names(x, axis, paired)
    of_x, of_y = "P" * paired, "Q" * (not real)
    equation = f"{front}N{back}{of_x},N{of_x}K{of_y}->{front}K{back}{of_y}"
    return einsum(s, equation, [x, s.const(matrix, "matrix")])


def _in_two(s: Site, x: Any, axis: int, how: Transform, paired: bool, real: bool) -> Any:
    """Point ``n = other * i + o`` to bin ``k = j + factor * m``: over i for each o, then o for each j. No i
    counts whose points are all zeros behind the end of x.
    """
    factor = _factor(how.length)
    other = how.length // factor
    rows = -(-x.shape[axis] // other)
    x = _filled(s, x, axis, rows * other)
    front, back = _names(x, axis, paired)
    x = reshape(s, x, (*x.shape[:axis], rows, other, *x.shape[axis + 1 :]), last=False)
    columns = -(-how.made // factor)  # values of m that are wanted
    if 4 * max(how.length * factor, other * columns) > MOST:
        raise Unsupported(f"of {how.length} points")
    i, o, j = np.ogrid[:rows, :other, :factor]
    turns = how.weights(other * i + o) * how.turned(i * j * other + o * j)
    first = _parts(multiplication(turns).transpose(1, 0, 3, 2, 4), paired, False)  # [o, i, part, j, part]
    turns = how.turned(factor * np.outer(np.arange(other), np.arange(columns)))
    second = _parts(multiplication(turns).transpose(0, 2, 1, 3), True, real)  # [o, part, m, part]
    of_x, of_y = "P" * paired, "R" * (not real)
    equation = f"{front}IO{back}{of_x},OI{of_x}JQ,OQM{of_y}->{front}MJ{back}{of_y}"
    y = einsum(s, equation, [x, s.const(first, "first"), s.const(second, "second")])
    y = reshape(s, y, (*y.shape[:axis], columns * factor, *y.shape[axis + 2 :]), last=False)
    return _cut(s, y, axis, how.made)


def _parts(matrices: Array, paired: bool, real: bool) -> Array:
    """``[..., part, n, part]`` without the axes of parts that x or y do not have."""
    matrices = matrices if paired else matrices[..., 0, :, :]
    return np.ascontiguousarray(matrices[..., 0] if real else matrices)


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
    batch, _, frames, _ = x.shape
    lines = transformed(s, x, 1, how, paired=True, real=True)
    lines = s.emit("mul", lines, s.const(taper[:, None].astype(np.float32), "window"), inner=lines.shape)
    size = how.length + hop * (frames - 1)
    return s.emit(
        "fold", lines, inner=(batch, 1, size),
        output_size=(size,), kernel=(how.length,), stride=(hop,), padding=(0, 0), dilation=(1,),
    )  # fmt: skip


def centred(taper: Array, length: int) -> Array:
    """A window with zeros on both sides, up to a length."""
    before = (length - taper.size) // 2
    return np.pad(taper.astype(np.float64), (before, length - taper.size - before))


def _factor(length: int) -> int:
    """The smaller of the two factors that a transform is taken apart into; 1: it is not."""
    if length <= WHOLE:
        return 1
    return next((n for n in range(math.isqrt(length), 3, -1) if length % n == 0), 1)


def _names(x: Any, axis: int, paired: bool) -> tuple[str, str]:
    """Names for the axes before ``axis`` and behind it, pairs left out."""
    count = len(x.shape) - paired
    if count > 26:
        raise Unsupported(f"of a tensor of {count} axes")
    names = "abcdefghijklmnopqrstuvwxyz"[:count]
    return names[:axis], names[axis + 1 :]


def _cut(s: Site, x: Any, axis: int, most: int) -> Any:
    """The first ``most`` positions along an axis."""
    if x.shape[axis] <= most:
        return x
    shape = (*x.shape[:axis], most, *x.shape[axis + 1 :])
    return s.emit("slice", x, inner=shape, axis=axis, start=0, stop=most)


def _filled(s: Site, x: Any, axis: int, length: int) -> Any:
    """``x`` with zeros behind it along an axis, up to a length."""
    rank, missing = len(x.shape), length - x.shape[axis]
    if not missing:
        return x
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    pads = [0] * (2 * rank)
    pads[rank + axis] = missing
    return s.emit("pad", x, inner=shape, pads=tuple(pads), value=0.0, mode="constant")
