"""Sums of products of integers, straight from their definitions, in int64."""

from typing import NamedTuple

import numpy as np

from bslite.ops.integer import cells
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
    whole = parted(whole, axis, groups)
    wide = [(0, 0)] * whole.ndim
    wide[axis + 1] = (0, whole.shape[axis + 1] % 2)
    whole = np.moveaxis(np.pad(whole, wide), axis + 1, -1)
    made = np.moveaxis((whole[..., ::2] & 0xFFFF) | (whole[..., 1::2] << 16), -1, axis + 1)
    return np.ascontiguousarray(
        made.reshape(*x.shape[:axis], cells(x.shape[axis], groups), *x.shape[axis + 1 :]), np.int32
    )


def unpaired(y: Array, axis: int, channels: int, groups: int = 1) -> Array:
    """The int64 numbers of pairs along ``axis``, so many ``channels`` of them."""
    axis %= y.ndim
    shape = (*y.shape[:axis], channels, *y.shape[axis + 1 :])
    apart = np.moveaxis(parted(y, axis, groups), axis + 1, -1).astype(np.int64)
    both = np.stack([(apart & 0xFFFF ^ 0x8000) - 0x8000, apart >> 16], -1)
    both = both.reshape(*apart.shape[:-1], -1)[..., : channels // groups]
    return np.moveaxis(both, -1, axis + 1).reshape(shape)


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
        if residual is not None:
            t = t * kind.type(self.own) + residual.astype(kind) * kind.type(self.other)
        t = rounded(t, *self.second)
        if self.to != "pairs":
            return t
        least = self.second[3] if self.second[2] else self.first[3]
        return pairs(np.where(np.isnan(t), least, t), axis=axis, groups=1)


@reference("int_conv1d", "int_conv2d", "int_conv3d")
def int_conv(
    x: Array, residual: Array | None = None, *, weight: Array, offset: Array | None = None,
    scale: Array | None = None, shift: Array | None = None, stride: Sizes, padding: Sizes, dilation: Sizes,
    groups: int, to: str, first: Numbers, own: float, other: float, second: Numbers,
) -> Array:  # fmt: skip
    """The convolution of pairs ``x`` with whole numbers ``weight``, then `Finish`."""
    numbers = unpaired(x, 1, weight.shape[1] * groups, groups)
    total = conv(
        numbers, weight=weight.astype(np.int64), stride=stride, padding=padding, dilation=dilation,
        groups=groups,
    )  # fmt: skip
    added = None if residual is None else unpaired(residual, 1, weight.shape[0])
    return Finish(to, first, own, other, second).of(total, 1, offset, scale, shift, added)


@reference("int_linear")
def int_linear(
    x: Array, factor: Array | None = None, *, weight: Array, offset: Array | None = None,
    scale: Array | None = None, shift: Array | None = None, to: str, first: Numbers,
    own: float, other: float, second: Numbers,
) -> Array:  # fmt: skip
    """``sum_c x[..., c] * weight[k, c]`` of pairs ``x`` and whole numbers, then `Finish`."""
    total = unpaired(x, -1, weight.shape[1]) @ weight.T.astype(np.int64)
    return Finish(to, first, own, other, second).of(total, -1, offset, scale, shift, None, factor)
