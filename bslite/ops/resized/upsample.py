"""Resizing of images by interpolation."""

import math
from collections.abc import Sequence

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import Attr, Attrs, Kind, Op, ParamShapes, Shape, case
from bslite.ops.resized.resampling import Taps, linear_taps, nearest_taps, transposed
from bslite.ops.values import Applied, Gradients, Value


def tables(x: Shape, y: Shape, attrs: Attrs) -> list[Taps]:
    """The taps of rows and of columns, by torch's rules."""
    made: list[Taps] = []
    for have, out, scale in zip(x[2:], y[2:], attrs["scale"] or (None, None), strict=True):
        if attrs["mode"] == "nearest":
            made.append(nearest_taps(have, out, scale))
        else:
            made.append(linear_taps(have, out, scale, attrs["align_corners"]))
    return made


class Upsample(Op):
    """``[N, C, H, W]`` resized to ``size``, or by ``scale``; ``torch.nn.functional.interpolate``'s rules.

    With ``scale`` the output size is rounded down, and ``scale`` itself, not the ratio of the sizes, maps
    output pixels to input pixels (unless ``align_corners``).
    """

    name = "upsample"
    kind = Kind.MOVEMENT
    attrs = (
        Attr("mode", a.choice("nearest", "bilinear")),
        Attr("size", a.optional(a.each(2)), None, "(height, width); this or scale"),
        Attr("scale", a.optional(a.each_of(a.positive, 2)), None, "(vertical, horizontal); this or size"),
        Attr("align_corners", a.boolean, False, "bilinear only: corner pixels map to corner pixels"),
    )
    torch_name = "interpolate"
    onnx_name = "Resize"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        checks.rank(self.name, ins[0], 4, "[N, C, H, W]")
        n, c, h, w = ins[0]
        size, scale = attrs["size"], attrs["scale"]
        if (size is None) == (scale is None):
            raise SpecError(f"op 'upsample': size={size} and scale={scale}, expected exactly one of them")
        if attrs["align_corners"] and attrs["mode"] == "nearest":
            raise SpecError("op 'upsample': align_corners=True has no meaning in mode 'nearest'")
        rows, columns = size or (math.floor(h * scale[0]), math.floor(w * scale[1]))
        return n, c, rows, columns

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return 7 * math.prod(out) if attrs["mode"] == "bilinear" else 0  # 4 products, 3 sums

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        """The transpose: sums of blocks where each pixel is repeated, else a product along each axis."""
        (x,), attrs = at.inputs, at.attrs
        times = [p // h if p % h == 0 else 0 for h, p in zip(x.shape[2:], grad.shape[2:], strict=True)]
        exact = attrs["scale"] is None or list(attrs["scale"]) == times
        if attrs["mode"] == "nearest" and all(times) and exact:
            return {0: grad.op("avg_pool2d", kernel=times) * float(math.prod(times))}
        for axis, table in zip((2, 3), tables(x.shape, grad.shape, attrs), strict=True):
            if x.shape[axis] != grad.shape[axis]:
                grad = transposed(grad, axis, table, x.shape[axis])
        return {0: grad}

    samples = [
        *(
            case(f"{mode}, {label}", x, mode=mode, **attrs)
            for mode in ("nearest", "bilinear")
            for label, x, attrs in (
                ("doubled", (2, 5, 3, 4), {"scale": 2}),
                ("one pixel", (1, 3, 1, 1), {"size": (4, 3)}),
                ("same size", (1, 3, 4, 5), {"size": (4, 5)}),
                ("to a size", (2, 3, 5, 7), {"size": (8, 9)}),
                ("smaller", (1, 4, 9, 8), {"size": (4, 3)}),
                ("by odd factors", (1, 2, 6, 5), {"scale": (1.5, 2.3)}),
                ("by a factor too small to show", (1, 2, 5, 7), {"scale": 1.1}),
                ("halved", (1, 3, 7, 6), {"scale": 0.5}),
                ("to one row", (1, 2, 5, 4), {"size": (1, 6)}),
            )
        ),
        case("bilinear, corners, doubled", (2, 3, 4, 5), mode="bilinear", scale=2, align_corners=True),
        case("bilinear, corners, to a size", (1, 3, 5, 4), mode="bilinear", size=(9, 7), align_corners=True),
        case("bilinear, corners, to one row", (1, 3, 5, 4), mode="bilinear", size=(1, 7), align_corners=True),
        case("bilinear, corners, from one pixel", (1, 3, 1, 1), mode="bilinear", size=3, align_corners=True),
    ]
