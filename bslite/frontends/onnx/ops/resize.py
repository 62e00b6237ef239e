"""Builders of Resize and its forerunner Upsample."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.frontends.common.unsupported import Varies
from bslite.frontends.onnx.builders import onnx_op
from bslite.frontends.onnx.ops.moves import axes_of
from bslite.frontends.onnx.site import Site
from bslite.frontends.onnx.values import Dim, Operand, at, fixed
from bslite.spec import Array


@onnx_op("Upsample")
@onnx_op("Resize", since=10)
def upsample(s: Site, x: Operand, scales: Operand | tuple[float, ...], *, mode: str) -> Operand:
    by = list(scales) if isinstance(scales, tuple) else _floats(s, scales, "its scales")
    return _resize(s, x, mode, list(range(x.rank)), by, None, "asymmetric", "floor")


def _floats(s: Site, operand: Operand, what: str) -> list[float]:
    return [float(f) for f in s.array(operand, what).reshape(-1)]


@onnx_op("Resize", since=11)
def resize(
    s: Site, x: Operand, roi: Operand | None = None, scales: Operand | None = None,
    sizes: Operand | None = None, *, mode: str, coordinate_transformation_mode: str, cubic_coeff_a: float,
    exclude_outside: int, extrapolation_value: float, nearest_mode: str, antialias: int = 0,
    axes: Sequence[int] | None = None, keep_aspect_ratio_policy: str = "stretch",
) -> Operand:  # fmt: skip
    over = axes_of(range(x.rank) if axes is None else axes, x.rank)
    by = None if scales is None else _floats(s, scales, "its scales")
    to = s.dims(sizes, "its sizes") if sizes is not None and not by else None
    if not by and to is None:
        raise SpecError("it has neither scales nor sizes")
    if to is not None and keep_aspect_ratio_policy != "stretch" and len(to) == len(over):
        to = in_proportion([x.shape[a] for a in over], to, keep_aspect_ratio_policy)
    more: dict[str, Any] = {"antialias": bool(antialias)}
    if mode == "cubic":
        more |= {"cubic_a": cubic_coeff_a, "exclude_outside": bool(exclude_outside)}
    elif exclude_outside:
        more |= {"exclude_outside": True}
    if coordinate_transformation_mode == "tf_crop_and_resize":
        if roi is None:
            raise SpecError("tf_crop_and_resize needs a roi")
        corners = tuple(_floats(s, roi, "its roi"))
        more |= {"roi": corners, "extrapolation": extrapolation_value}
    return _resize(s, x, mode, over, by or None, to, coordinate_transformation_mode, nearest_mode, **more)


def in_proportion(have: Sequence[Dim], want: Sequence[Dim], policy: str) -> list[Dim]:
    """The sizes if all axes have one scale: the least or the largest of those asked for."""
    ratios = [at(w, 0) / at(h, 0) for h, w in zip(have, want, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    if any(isinstance(d, tuple) for d in (*have, *want)):
        raise Varies(f"keep_aspect_ratio_policy={policy} with free sizes")
    return [math.floor(scale * at(h, 0) + 0.5) for h in have]


def _resize(
    s: Site, x: Operand, mode: str, axes: list[int], scales: list[float] | None, sizes: list[Dim] | None,
    coordinates: str, rounding: str, **more: Any,
) -> Operand:  # fmt: skip
    """Resize by ``scales`` or to ``sizes``. Axes that keep their size are left out, except for a crop."""
    given: Sequence[Any] = scales if scales is not None else sizes or []
    if len(given) != len(axes) or len(axes) > x.rank:
        raise SpecError(f"it has {len(given)} scales or sizes for {len(axes)} axes")
    if coordinates != "tf_crop_and_resize":
        same = [g == (1 if scales else x.shape[a]) for a, g in zip(axes, given, strict=True)]
        axes = [a for a, kept in zip(axes, same, strict=True) if not kept]
        given = [g for g, kept in zip(given, same, strict=True) if not kept]
    if not axes:
        return x
    if scales is None and any(isinstance(g, tuple) for g in given):
        given, scales = _ratios(s, [x.shape[a] for a in axes], given), []
    if (empty := _nothing(x, axes, given, scales is not None)) is not None:
        return s.const(empty)
    if x.rank == 4 and 1 in axes and not {0, 3}.intersection(axes) and coordinates != "tf_crop_and_resize":
        image, after = s.emit("permute", x, order=(0, 3, 1, 2)), [a + 1 for a in axes]  # channels are last
        by, to = (None, list(given)) if scales is None else (list(given), None)
        made = _resize(s, image, mode, after, by, to, coordinates, rounding, **more)
        return s.emit("permute", made, order=(0, 2, 3, 1))
    how: dict[str, Any] = {"scales" if scales is not None else "sizes": tuple(given)}
    fast = _as_upsample(mode, coordinates, rounding)
    if x.rank == 4 and axes == [2, 3] and x.dtype == "float32" and fast and not more.get("antialias"):
        key = "scale" if scales is not None else "size"
        whole = scales is None or all(float(g).is_integer() for g in given)
        if whole and (coordinates != "pytorch_half_pixel" or min(given) > 1):
            return s.emit("upsample", x, **{key: tuple(given)}, **fast)
    return s.emit(
        "resize", x, mode=mode, axes=tuple(axes), coordinates=coordinates, rounding=rounding, **how, **more
    )


def _nothing(x: Operand, axes: list[int], given: Sequence[Any], by_scales: bool) -> Array | None:
    """The result, where an axis has nothing left of it; None where each has."""
    if any(isinstance(d, tuple) for d in (*x.shape, *given)):
        return None
    out = list(x.shape)
    for a, g in zip(axes, given, strict=True):
        out[a] = math.floor(fixed(x.shape[a], "a size") * g) if by_scales else g
    return np.zeros(out, x.dtype) if min(out) == 0 else None


def _as_upsample(mode: str, coordinates: str, rounding: str) -> dict[str, Any] | None:
    """Attributes of the upsample op that is the same, if there is one."""
    if mode == "nearest" and coordinates == "asymmetric" and rounding == "floor":
        return {"mode": "nearest"}
    if mode == "linear" and coordinates in ("half_pixel", "pytorch_half_pixel"):
        return {"mode": "bilinear"}
    if mode == "linear" and coordinates == "align_corners":
        return {"mode": "bilinear", "align_corners": True}
    return None


def _ratios(s: Site, have: list[Dim], want: Sequence[Dim]) -> list[float]:
    """Scales for sizes that are free: whole multiples of the input's."""
    made = []
    for h, w in zip(have, want, strict=True):
        ratios = {at(w, i) / at(h, i) for i in range(len(s.store.probes))}
        ratio = ratios.pop()
        if ratios or not ratio.is_integer():
            raise Varies("its sizes depend on free ones, and are no multiple of them")
        made.append(ratio)
    return made
