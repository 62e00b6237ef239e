"""Builders of interpolation: `upsample` for images by the common rules, `resize` for the others."""

from typing import Any

from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import aten
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.values import Operand

NEAREST = [f"{name}{axes}d" for name in ("upsample_nearest", "_upsample_nearest_exact") for axes in (1, 2, 3)]


def given(scales: tuple[Any, ...]) -> tuple[float, ...]:
    """The scales, listed (as by the overload ``vec``) or one by one; none of them if one is left out.

    Where torch is given scales, it maps positions by them, not by the ratio of the sizes.
    """
    each = [f for part in scales for f in (part if isinstance(part, (list, tuple)) else (part,))]
    return tuple(each) if all(each) else ()


def resize(s: Site, x: Operand, scales: tuple[float, ...], mode: str, **attrs: Any) -> Value:
    axes, sizes = range(2, x.rank), s.shape[2:]
    if scales and attrs.get("coordinates") != "align_corners":
        return s.emit("resize", x, mode=mode, axes=axes, scales=scales, **attrs)
    if not all(isinstance(n, int) for n in sizes):
        raise Varies("its size depends on the batch")
    return s.emit("resize", x, mode=mode, axes=axes, sizes=sizes, **attrs)


def upsample(s: Site, x: Operand, size: Any, scales: tuple[float, ...], mode: str, **attrs: Any) -> Value:
    if scales:
        return s.emit("upsample", x, mode=mode, scale=scales, **attrs)
    return s.emit("upsample", x, mode=mode, size=tuple(size), **attrs)


@aten(*NEAREST)
def nearest(s: Site, x: Operand, size: Any, *scales: Any) -> Value:
    """torch's "nearest" takes the floor of ``i / scale``, its "nearest-exact" the nearest pixel centre."""
    if s.operation == "upsample_nearest2d":
        return upsample(s, x, size, given(scales), "nearest")
    if "exact" in s.operation:
        return resize(s, x, given(scales), "nearest", rounding="round_prefer_ceil")
    return resize(s, x, given(scales), "nearest", coordinates="asymmetric", rounding="floor")


@aten("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d")
def smooth(s: Site, x: Operand, size: Any, align_corners: bool, *scales: Any) -> Value:
    if s.operation == "upsample_bilinear2d":
        return upsample(s, x, size, given(scales), "bilinear", align_corners=align_corners)
    mode = "cubic" if "cubic" in s.operation else "linear"
    return resize(s, x, given(scales), mode, coordinates="align_corners" if align_corners else "half_pixel")


@aten("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")
def smoothed(s: Site, x: Operand, size: Any, align_corners: bool, *scales: Any) -> Value:
    """With antialiasing torch leaves out what lies beyond the image, and its cubic has another parameter."""
    if align_corners:
        raise Unsupported("antialias with align_corners")
    mode = "cubic" if "cubic" in s.operation else "linear"
    return resize(s, x, given(scales), mode, antialias=True, exclude_outside=True, cubic_a=-0.5)
