"""Resizing along any axes, by all the rules frameworks have; `upsample` is the fast way for common ones."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, Shape
from bslite.ops.resized.resampling import outside, places, taps, transposed
from bslite.ops.values import Applied, Gradients, Value

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _reals(one: Any) -> Any:
    return lambda value: tuple(one(v) for v in value)


class Resize(Op):
    """The input resized along ``axes``, to ``sizes`` or by ``scales`` (sizes rounded down); ONNX's rules.

    Output index i lies at an input position: ``(i + 1/2) / scale - 1/2`` (half_pixel), ``i / scale``
    (asymmetric), ... and is the nearest element there, or a sum of the 2 (linear) or 4 (cubic) around it, the
    outermost standing for those beyond. Where sizes shrink, ``antialias`` widens the sum.
    """

    name = "resize"
    kind = Kind.MOVEMENT
    attrs = (
        Attr("mode", a.choice("nearest", "linear", "cubic")),
        Attr("axes", a.ints()),
        Attr("sizes", a.optional(a.ints(1)), None, "one for each axis; these or scales"),
        Attr("scales", a.optional(_reals(a.positive)), None, "one for each axis; these or sizes"),
        Attr("coordinates", a.choice(*COORDINATES), "half_pixel"),
        Attr("rounding", a.choice(*ROUNDINGS), "round_prefer_floor", "nearest only"),
        Attr("cubic_a", a.real, -0.75),
        Attr("exclude_outside", a.boolean, False, "leave out what lies beyond, and scale up the rest"),
        Attr("antialias", a.boolean, False),
        Attr("roi", a.optional(_reals(a.real)), None, "tf_crop_and_resize: starts of all axes, then ends"),
        Attr("extrapolation", a.real, 0.0, "tf_crop_and_resize: what lies beyond"),
    )
    torch_name = "interpolate"
    onnx_name = "Resize"

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        if attrs["mode"] != "nearest" and ins[0] != "float32":
            raise SpecError(f"op 'resize': mode {attrs['mode']!r} of {ins[0]}, expected float32")
        return ins[0]

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, sizes, scales = ins[0], attrs["sizes"], attrs["scales"]
        axes = [checks.axis(self.name, axis, len(x)) for axis in attrs["axes"]]
        given = sizes if sizes is not None else scales
        if (sizes is None) == (scales is None) or len(given) != len(axes) or len(set(axes)) != len(axes):
            raise SpecError(
                f"op 'resize': axes {axes}, sizes {sizes}, scales {scales}; "
                "expected sizes or scales, one for each of different axes"
            )
        crop = attrs["coordinates"] == "tf_crop_and_resize"
        if crop != (attrs["roi"] is not None) or (crop and len(attrs["roi"]) != 2 * len(axes)):
            raise SpecError(f"op 'resize': roi {attrs['roi']} with coordinates {attrs['coordinates']!r}")
        out = list(x)
        for i, axis in enumerate(axes):
            out[axis] = sizes[i] if sizes is not None else math.floor(x[axis] * scales[i])
        return tuple(out)

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return {"nearest": 0, "linear": 4, "cubic": 8}[attrs["mode"]] * len(attrs["axes"]) * math.prod(out)

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        """The transpose, axis by axis."""
        (x,) = at.inputs
        for axis, place in places(x.shape, grad.shape, at.attrs).items():
            table = taps(place, at.attrs)
            for i in outside(place, at.attrs["coordinates"]) if at.attrs["roi"] else ():
                table[i] = []
            grad = transposed(grad, axis, table, x.shape[axis])
        return {0: grad}

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return all(axis % ranks[0] for axis in attrs["axes"])

    def cases(self) -> Sequence[Case]:
        def case(label: str, x: Shape, mode: str, **attrs: Any) -> Case:
            attrs.setdefault("axes", tuple(range(2, len(x))))
            return Case(f"{mode}, {label}", [x], attrs={"mode": mode, **attrs})

        targets: list[tuple[str, Shape, dict[str, Any]]] = [
            ("a line", (2, 3, 7), {"scales": (2.25,)}),
            ("a volume", (1, 2, 3, 4, 5), {"sizes": (5, 3, 8)}),
            ("an image", (2, 19, 5, 4), {"sizes": (8, 3)}),
            ("from one pixel", (1, 3, 1, 1), {"sizes": (3, 2)}),
            ("to one", (1, 3, 4, 5), {"sizes": (1, 7)}),
        ]
        smooth = [
            case(f"{label}, {coordinates}", x, mode, coordinates=coordinates, **attrs)
            for mode in ("linear", "cubic")
            for coordinates in ("half_pixel", "align_corners")
            for label, x, attrs in targets
            if mode == "linear" or len(x) == 4
        ]
        onnx = [
            case("asymmetric", (1, 3, 4, 5), "linear", scales=(1.5, 0.625), coordinates="asymmetric"),
            case("asymmetric", (1, 3, 4, 5), "cubic", scales=(1.5, 2.0), coordinates="asymmetric"),
            case(
                "symmetric", (1, 3, 4, 5), "linear", scales=(0.5625, 2.75),
                coordinates="half_pixel_symmetric",
            ),
            case("pytorch", (1, 3, 4, 5), "cubic", sizes=(1, 7), coordinates="pytorch_half_pixel"),
            case("other a", (1, 3, 4, 5), "cubic", sizes=(7, 3), cubic_a=-0.5, exclude_outside=True),
            case("smoothed", (1, 3, 9, 8), "linear", sizes=(4, 3), antialias=True),
            case("smoothed", (1, 3, 9, 8), "cubic", sizes=(4, 11), antialias=True, exclude_outside=True),
            case("other axes", (3, 4, 5, 2), "linear", sizes=(6, 7), axes=(2, 0)),
            case(
                "cropped", (1, 3, 6, 7), "linear", sizes=(5, 9), coordinates="tf_crop_and_resize",
                roi=(0.2, -0.1, 0.9, 1.3), extrapolation=7.5,
            ),
        ]  # fmt: skip
        nearest = [
            case(f"{coordinates}, {rounding}, {scales}", (1, 5, 4, 6), "nearest",
                 scales=scales, coordinates=coordinates, rounding=rounding)
            for coordinates in ("half_pixel", "asymmetric", "align_corners")
            for rounding in ROUNDINGS
            for scales in [(2.0, 1.5), (0.5, 0.6875)]
        ]  # fmt: skip
        return [*smooth, *onnx, *nearest]
