"""Builders of interpolation: `upsample` for images by the common rules, `resize` for the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand


def resize(s: Site, x: Operand, scales: Any, mode: str, **attrs: Any) -> Value:
    """By scale if torch was given one: it then maps positions by the scale, not by the ratio of the sizes."""
    axes = range(2, len(x.shape))
    sizes = s.shape[2:]
    if scales and all(scales) and attrs.get("coordinates") != "align_corners":
        return s.emit("resize", x, mode=mode, axes=axes, scales=tuple(scales), **attrs)
    if not all(isinstance(n, int) for n in sizes):
        raise Unsupported("its size depends on the batch")
    return s.emit("resize", x, mode=mode, axes=axes, sizes=sizes, **attrs)


def coordinates(align_corners: bool) -> str:
    return "align_corners" if align_corners else "half_pixel"


@aten("upsample_linear1d.vec", "upsample_trilinear3d.vec")
def linear_vec(s: Site, x: Operand, size: Any, align_corners: bool, scales: Any = None) -> Value:
    return resize(s, x, scales, "linear", coordinates=coordinates(align_corners))


@aten("upsample_linear1d", "upsample_trilinear3d")
def linear(s: Site, x: Operand, size: Any, align_corners: bool, *scales: Any) -> Value:
    return resize(s, x, scales, "linear", coordinates=coordinates(align_corners))


@aten("upsample_bicubic2d.vec")
def bicubic_vec(s: Site, x: Operand, size: Any, align_corners: bool, scales: Any = None) -> Value:
    return resize(s, x, scales, "cubic", coordinates=coordinates(align_corners))


@aten("upsample_bicubic2d")
def bicubic(s: Site, x: Operand, size: Any, align_corners: bool, *scales: Any) -> Value:
    return resize(s, x, scales, "cubic", coordinates=coordinates(align_corners))


def smoothed(s: Site, x: Operand, align_corners: bool, scales: Any) -> Value:
    """With antialiasing torch leaves out what lies beyond the image, and its cubic has another parameter."""
    mode = "cubic" if "bicubic" in s.operation else "linear"
    if align_corners:
        raise Unsupported("antialias with align_corners")
    return resize(s, x, scales, mode, antialias=True, exclude_outside=True, cubic_a=-0.5)


@aten("_upsample_bilinear2d_aa.vec", "_upsample_bicubic2d_aa.vec")
def smoothed_vec(s: Site, x: Operand, size: Any, align_corners: bool, scales: Any = None) -> Value:
    return smoothed(s, x, align_corners, scales)


@aten("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def smoothed_sizes(s: Site, x: Operand, size: Any, align_corners: bool, *scales: Any) -> Value:
    return smoothed(s, x, align_corners, scales)


def nearest(s: Site, x: Operand, scales: Sequence[Any] | None) -> Value:
    """torch's "nearest" takes the floor of ``i / scale``, its "nearest-exact" the nearest pixel centre."""
    if "exact" in s.operation:
        return resize(s, x, scales, "nearest", rounding="round_prefer_ceil")
    return resize(s, x, scales, "nearest", coordinates="asymmetric", rounding="floor")


@aten(
    "upsample_nearest1d.vec", "upsample_nearest3d.vec",
    "_upsample_nearest_exact1d.vec", "_upsample_nearest_exact2d.vec", "_upsample_nearest_exact3d.vec",
)  # fmt: skip
def nearest_vec(s: Site, x: Operand, size: Any, scales: Any = None) -> Value:
    return nearest(s, x, scales)


@aten(
    "upsample_nearest1d", "upsample_nearest3d",
    "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
)  # fmt: skip
def nearest_sizes(s: Site, x: Operand, size: Any, *scales: Any) -> Value:
    return nearest(s, x, scales)
