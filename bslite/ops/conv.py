"""2-D convolution: dense, grouped and depthwise."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, RowMap, Shape


class Conv2d(Op):
    """Cross-correlation of ``[N, C, H, W]`` with ``weight [K, C/groups, R, S]`` plus ``bias [K]``."""

    name = "conv2d"
    kind = Kind.CONTRACTION
    params = {"weight": True, "bias": False}
    attrs = (
        Attr("stride", a.pair(), (1, 1)),
        Attr("padding", a.padding, (0, 0, 0, 0), "(top, left, bottom, right), zeros"),
        Attr("dilation", a.pair(), (1, 1)),
        Attr("groups", a.integer(1), 1, "groups == C == K is depthwise"),
    )
    torch_name = "conv2d"
    onnx_name = "Conv"

    @classmethod
    def shape(cls, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, w, groups = ins[0], params["weight"], attrs["groups"]
        checks.rank(cls.name, x, 4, "[N, C, H, W]")
        checks.rank(cls.name, w, 4, "a weight [K, C/groups, R, S]")
        n, c, h, width = x
        k, cg, r, s = w
        if c != cg * groups:
            raise SpecError(
                f"op 'conv2d': input has {c} channels, "
                f"weight {list(w)} with groups={groups} expects {cg * groups}"
            )
        if k % groups:
            raise SpecError(f"op 'conv2d': {k} output channels do not divide into groups={groups}")
        if "bias" in params:
            checks.param_shape(cls.name, "bias", params["bias"], (k,), "(one per output channel)")
        (sh, sw), (dh, dw), (pt, pl, pb, pr) = attrs["stride"], attrs["dilation"], attrs["padding"]
        return (
            n,
            k,
            checks.window_output(h, r, sh, pt + pb, dh),
            checks.window_output(width, s, sw, pl + pr, dw),
        )

    @classmethod
    def flops(cls, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        _, cg, r, s = params["weight"]
        return 2 * math.prod(out) * cg * r * s

    @classmethod
    def rows(cls, params: ParamShapes, attrs: Attrs) -> RowMap:
        r = params["weight"][2]
        return RowMap(attrs["stride"][0], attrs["padding"][0], attrs["dilation"][0] * (r - 1) + 1)

    @classmethod
    def cases(cls) -> Sequence[Case]:
        def case(label: str, x: Shape, k: int, r: int, s: int, *, bias: bool = True, **attrs: object) -> Case:
            groups = attrs.get("groups", 1)
            assert isinstance(groups, int)
            params: dict[str, Shape] = {"weight": (k, x[1] // groups, r, s)}
            if bias:
                params["bias"] = (k,)
            return Case(label, [x], params, attrs)

        return [
            case("1x1", (2, 16, 9, 7), 32, 1, 1),
            case("1x1 one pixel", (1, 5, 1, 1), 3, 1, 1),
            case("1x1 strided", (2, 24, 9, 8), 40, 1, 1, stride=2),
            case("3x3 same", (2, 8, 10, 11), 16, 3, 3, padding=1),
            case("3x3 valid, no bias", (1, 3, 8, 9), 5, 3, 3, bias=False),
            case("3x3 strided", (3, 17, 15, 14), 33, 3, 3, stride=2, padding=1),
            case("7x7 stem", (2, 3, 32, 30), 64, 7, 7, stride=2, padding=3),
            case("11x11 stem", (1, 3, 63, 64), 48, 11, 11, stride=4, padding=2),
            case("1x7 and 7x1 padding", (1, 12, 17, 17), 20, 1, 7, padding=(0, 3)),
            case("asymmetric padding", (2, 6, 9, 10), 10, 3, 3, padding=(0, 1, 2, 3)),
            case("asymmetric stride", (1, 7, 13, 12), 9, 3, 2, stride=(2, 3), padding=(1, 0)),
            case("dilated", (1, 16, 17, 18), 24, 3, 3, dilation=2, padding=2),
            case("asymmetric dilation", (2, 4, 14, 15), 8, 3, 3, dilation=(1, 3), padding=(1, 3)),
            case("kernel as large as the image", (2, 8, 5, 6), 12, 5, 6),
            case("many channels, small image", (1, 160, 7, 7), 96, 3, 3, padding=1),
            case("deep 1x1", (1, 640, 4, 4), 70, 1, 1),
            case("grouped", (2, 32, 9, 9), 64, 3, 3, groups=4, padding=1),
            case("grouped, thin", (1, 24, 8, 7), 12, 3, 3, groups=6, stride=2, padding=1),
            case("depthwise 3x3", (2, 37, 11, 12), 37, 3, 3, groups=37, padding=1),
            case("depthwise strided", (1, 96, 14, 15), 96, 3, 3, groups=96, stride=2, padding=1),
            case("depthwise 5x5 dilated", (1, 16, 15, 13), 16, 5, 5, groups=16, dilation=2, padding=4),
            case("depthwise, multiplier 2", (2, 18, 9, 8), 36, 3, 3, groups=18, padding=1),
        ]
