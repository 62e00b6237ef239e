"""Sums of products of integers, straight from their definitions, in int64."""

from typing import NamedTuple

import numpy as np

from bslite.ops.integer import EACH, cells
from bslite.reference.conv import conv
from bslite.reference.registry import Array, reference

Sizes = tuple[int, ...]
Numbers = tuple[float, float, float, float]


def parted(x: Array, axis: int, groups: int) -> Array:
    """``x`` with ``axis`` cut in groups: the groups at ``axis``, what is in them after it."""
    return x.reshape(*x.shape[:axis], groups, -1, *x.shape[axis + 1 :])


@reference("pairs")
def pairs(
    x: Array, scale: Array | None = None, zero: Array | None = None, *, axis: int, groups: int
) -> Array:
    """``y[..., i] = lower half x[..., 2*i], upper half x[..., 2*i + 1]`` along ``axis``, as numbers of int16.

    What int16 does not hold becomes the nearest that it does, NaN the least.
    """
    axis %= x.ndim
    if scale is not None and zero is not None:
        x = np.clip(np.rint(x / scale), -zero, 255 - zero)
    whole = np.where(np.isnan(x), -(2**15), np.clip(np.rint(x), -(2**15), 2**15 - 1)).astype(np.int64)
    return in_cells(whole, "pairs", axis, groups)


@reference("quads")
def quads(x: Array, *, axis: int, groups: int, least: int) -> Array:
    """``byte j of y[..., i] = x[..., 4*i + j] - least`` along ``axis``, as the nearest of 0 to 255, NaN 0."""
    whole = np.clip(np.rint(np.where(np.isnan(x), least, x)) - least, 0, 255).astype(np.int64)
    return in_cells(whole, "quads", axis % x.ndim, groups)


def in_cells(whole: Array, form: str, axis: int, groups: int) -> Array:
    """Whole numbers in cells of int32: the first ones in the lowest bits, zeros where a group ends."""
    each, shape = EACH[form], whole.shape
    bits = 32 // each
    whole = parted(whole, axis, groups)
    wide = [(0, 0)] * whole.ndim
    wide[axis + 1] = (0, -whole.shape[axis + 1] % each)
    whole = np.moveaxis(np.pad(whole, wide), axis + 1, -1) & (2**bits - 1)
    made = sum(whole[..., j::each] << (bits * j) for j in range(each))
    made = np.moveaxis(made, -1, axis + 1).reshape(
        *shape[:axis], cells(shape[axis], form, groups), *shape[axis + 1 :]
    )
    return np.ascontiguousarray(made.astype(np.uint32)).view(np.int32)


def numbers(y: Array, form: str, axis: int, channels: int, groups: int = 1) -> Array:
    """The int64 numbers in cells along ``axis``, so many ``channels`` of them; those of pairs have signs."""
    axis %= y.ndim
    shape = (*y.shape[:axis], channels, *y.shape[axis + 1 :])
    apart = np.moveaxis(parted(y, axis, groups), axis + 1, -1).astype(np.int64)
    bits = 32 // EACH[form]
    sign = 2**15 if form == "pairs" else 0
    each = np.stack([(apart >> bits * j & (2**bits - 1) ^ sign) - sign for j in range(EACH[form])], -1)
    each = each.reshape(*apart.shape[:-1], -1)[..., : channels // groups]
    return np.moveaxis(each, -1, axis + 1).reshape(shape)


def rounded(t: Array, low: float, high: float, step: float, least: float) -> Array:
    """``t`` within bounds, then in steps, to the nearest of 256 from ``least`` on, unless ``step`` is 0."""
    t = np.clip(t, low, high)
    return np.clip(np.rint(t / step), least, least + 255) if step else t


class Finish(NamedTuple):
    """What follows a sum (`bslite.ops.integer.FINISH`)."""

    to: str
    first: Numbers
    own: float
    other: float
    second: Numbers

    def of(
        self, total: Array, axis: int, offset: Array | None, scale: Array | None, shift: Array | None,
        residual: Array | None = None, factor: Array | None = None,
    ) -> Array:  # fmt: skip
        """The value of an int64 sum with channels on ``axis``, in the precision of the parameters."""
        sizes = [-1 if i == axis % total.ndim else 1 for i in range(total.ndim)]
        if offset is not None:
            total = total + offset.astype(np.int64).reshape(sizes)
        total = ((total + 2**31) & (2**32 - 1)) - 2**31
        if self.to == "int32":
            return total.astype(np.int32)
        kind = next((p.dtype for p in (scale, shift, factor) if p is not None), np.dtype(np.float64))
        by = None if scale is None else scale.reshape(sizes)
        if factor is not None:
            by = factor if by is None else by * factor
        t = total.astype(kind)
        t = t if by is None else t * by
        t = rounded(t if shift is None else t + shift.reshape(sizes), *self.first)
        t = t * kind.type(self.own) if self.own else t
        t = t if residual is None else t + residual.astype(kind) * kind.type(self.other)
        t = rounded(t, *self.second)
        if self.to not in EACH:
            return t
        least = self.second[3] if self.second[2] else self.first[3]
        t = np.where(np.isnan(t), least, t)
        if self.to == "quads":
            return quads(t, axis=axis, groups=1, least=int(least))
        return pairs(t, axis=axis, groups=1)


@reference("int_conv1d", "int_conv2d", "int_conv3d")
def int_conv(
    x: Array, residual: Array | None = None, *, weight: Array, offset: Array | None = None,
    scale: Array | None = None, shift: Array | None = None, stride: Sizes, padding: Sizes, dilation: Sizes,
    groups: int, to: str, first: Numbers, own: float, other: float, second: Numbers, reads: str, adds: str,
    under: int,
) -> Array:  # fmt: skip
    """The convolution of the numbers in the cells ``x`` with whole numbers ``weight``, then `Finish`."""
    given = numbers(x, reads, 1, weight.shape[1] * groups, groups)
    total = conv(
        given, weight=weight.astype(np.int64), stride=stride, padding=padding, dilation=dilation,
        groups=groups,
    )  # fmt: skip
    added = None if residual is None else numbers(residual, adds, 1, weight.shape[0]) + under
    return Finish(to, first, own, other, second).of(total, 1, offset, scale, shift, added)


@reference("int_linear")
def int_linear(
    x: Array, factor: Array | None = None, *, weight: Array, offset: Array | None = None,
    scale: Array | None = None, shift: Array | None = None, to: str, first: Numbers,
    own: float, other: float, second: Numbers, reads: str, adds: str, under: int,
) -> Array:  # fmt: skip
    """``sum_c x[..., c] * weight[k, c]`` of the numbers in the cells ``x`` and whole ones, then `Finish`."""
    total = numbers(x, reads, -1, weight.shape[1]) @ weight.T.astype(np.int64)
    return Finish(to, first, own, other, second).of(total, -1, offset, scale, shift, None, factor)
