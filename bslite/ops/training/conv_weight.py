"""The gradient of a convolution by its weight: sums of pixels times gradients under every tap of a filter."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.conv import LAYOUTS
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, Shape, case, declare
from bslite.ops.values import Applied, Gradients, Value


def weight_attrs(axes: int) -> tuple[Attr, ...]:
    """Attributes of the gradient of a filter that moves along ``axes`` axes."""
    return (
        Attr("kernel", a.each(axes), doc="sizes of the filter"),
        Attr("stride", a.each(axes), (1,) * axes),
        Attr(
            "before",
            a.each(axes, 0),
            (0,) * axes,
            "zeros in front of each axis; behind it, as many as windows reach",
        ),
        Attr("dilation", a.each(axes), (1,) * axes),
        Attr("groups", a.integer(1), 1, "groups == C == K is depthwise"),
    )


class ConvGradWeight(Op):
    """Base of the gradients of filters: of inputs ``[N, C, ...]`` and values' gradients ``[N, K, ...]``."""

    kind = Kind.CONTRACTION
    arity = (2, 2)
    sums_images = True
    axes: ClassVar[int]  # that a window moves along

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, grad = ins
        groups = attrs["groups"]
        for shape in ins:
            checks.rank(self.name, shape, 2 + self.axes, LAYOUTS[self.axes])
        if x[0] != grad[0]:
            raise SpecError(
                f"op {self.name!r}: {x[0]} images {list(x)}, and gradients {list(grad)} of {grad[0]}"
            )
        if x[1] % groups or grad[1] % groups:
            raise SpecError(
                f"op {self.name!r}: channels of {list(x)} and {list(grad)} do not divide into groups={groups}"
            )
        return (grad[1], x[1] // groups, *attrs["kernel"])

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return 2 * math.prod(ins[1]) * math.prod(out[1:])

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        """It is linear in both: a transposed convolution with ``grad`` as weight, and a convolution."""
        (x, g), attrs = at.inputs, at.attrs
        axes = zip(
            x.shape[2:], attrs["kernel"], attrs["stride"], attrs["before"], attrs["dilation"], g.shape[2:],
            strict=True,
        )  # fmt: skip
        behind = [(p - 1) * s + (r - 1) * d + 1 - b - h for h, r, s, b, d, p in axes]
        given = {name: attrs[name] for name in ("stride", "dilation", "groups")}
        given["padding"] = (*attrs["before"], *(max(0, n) for n in behind))
        by_x = g.op(f"conv_transpose{self.axes}d_given", grad, **given)
        unseen = [max(0, -n) for n in behind]
        by_g = x.op(f"conv{self.axes}d_given", grad, **given)
        for axis, size in enumerate(g.shape):
            by_g = by_g.sliced(axis, 0, size)
        return {0: by_x.padded((0,) * len(x.shape), (0, 0, *unseen)), 1: by_g}


def weight_case(label: str, x: Shape, k: int, *made: int, kernel: Any, **attrs: Any) -> Case:
    """A sample case: the input ``x``, gradients of ``k`` channels of windows in so many places."""
    return case(label, x, (x[0], k, *made), kernel=kernel, **attrs)


declare(
    ConvGradWeight,
    "conv2d_grad_weight",
    "``dw[k, c, r, s]``, the sum over images and windows ``p, q`` of ``x[n, c, p*sh + r*dh - top, "
    "q*sw + s*dw - left] * g[n, k, p, q]``.",
    torch="",
    axes=2,
    attrs=weight_attrs(2),
    samples=[
        weight_case("one pixel", (1, 5, 1, 1), 3, 1, 1, kernel=1),
        weight_case("1x1", (2, 16, 9, 7), 32, 9, 7, kernel=1),
        weight_case("1x1 strided", (2, 24, 9, 8), 40, 5, 4, kernel=1, stride=2),
        weight_case("3x3 same", (2, 8, 10, 11), 16, 10, 11, kernel=3, before=1),
        weight_case("3x3 valid", (1, 3, 8, 9), 5, 6, 7, kernel=3),
        weight_case("3x3 strided", (3, 17, 15, 14), 33, 8, 7, kernel=3, stride=2, before=1),
        weight_case("7x7 stem", (2, 3, 32, 30), 64, 16, 15, kernel=7, stride=2, before=3),
        weight_case("long lines", (1, 6, 5, 700), 20, 5, 700, kernel=3, before=1),
        weight_case("many pixels", (3, 20, 40, 41), 9, 40, 41, kernel=3, before=1),
        weight_case("1x1, many pixels", (3, 35, 41, 40), 50, 41, 40, kernel=1),
        weight_case("1x7", (1, 12, 17, 17), 20, 17, 17, kernel=(1, 7), before=(0, 3)),
        weight_case("asymmetric", (2, 6, 9, 10), 10, 10, 12, kernel=(3, 2), before=(0, 2), stride=(1, 1)),
        weight_case(
            "asymmetric stride", (1, 7, 13, 12), 9, 7, 4, kernel=(3, 2), stride=(2, 3), before=(1, 0)
        ),
        weight_case("dilated", (1, 16, 17, 18), 24, 17, 18, kernel=3, dilation=2, before=2),
        weight_case("windows beyond the image", (1, 4, 5, 6), 6, 9, 8, kernel=3, stride=2, before=4),
        weight_case("many channels, small image", (2, 160, 7, 7), 96, 7, 7, kernel=3, before=1),
        weight_case("pixels 2 KB apart", (1, 512, 5, 4), 20, 5, 4, kernel=3, before=1),
        weight_case("every other pixel, 2 KB apart", (2, 256, 6, 9), 17, 3, 5, kernel=3, stride=2, before=1),
        weight_case("grouped", (2, 32, 9, 9), 64, 9, 9, kernel=3, groups=4, before=1),
        weight_case("grouped, pixels 2 KB apart", (1, 512, 4, 3), 36, 4, 3, kernel=3, groups=2, before=1),
        weight_case("grouped, thin", (1, 24, 8, 7), 12, 4, 4, kernel=3, groups=6, stride=2, before=1),
        weight_case("depthwise 3x3", (2, 37, 11, 12), 37, 11, 12, kernel=3, groups=37, before=1),
        weight_case("depthwise, many pixels", (4, 21, 33, 36), 21, 33, 36, kernel=3, groups=21, before=1),
        weight_case("depthwise strided", (1, 96, 14, 15), 96, 7, 8, kernel=3, groups=96, stride=2, before=1),
        weight_case(
            "depthwise 5x5 dilated", (1, 16, 15, 13), 16, 15, 13, kernel=5, groups=16, dilation=2, before=4
        ),
        weight_case("depthwise, multiplier 2", (2, 18, 9, 8), 36, 9, 8, kernel=3, groups=18, before=1),
    ],
)
declare(
    ConvGradWeight,
    "conv1d_grad_weight",
    "`conv2d_grad_weight` of signals ``[N, C, L]``.",
    torch="",
    axes=1,
    attrs=weight_attrs(1),
    samples=[
        weight_case("one element", (1, 3, 1), 5, 1, kernel=1),
        weight_case("pointwise", (2, 16, 19), 33, 19, kernel=1),
        weight_case("3", (2, 17, 21), 20, 21, kernel=3, before=1),
        weight_case("long", (2, 5, 3000), 18, 3000, kernel=5, before=2),
        weight_case("wide stem", (1, 1, 160), 24, 20, kernel=40, stride=8, before=19),
        weight_case("causal, dilated", (1, 16, 33), 24, 33, kernel=2, dilation=8, before=8),
        weight_case("padding wider than the signal", (1, 4, 3), 8, 7, kernel=7, before=5),
        weight_case("grouped", (2, 32, 15), 48, 15, kernel=3, groups=4, before=1),
        weight_case("depthwise", (2, 37, 18), 37, 18, kernel=7, groups=37, before=3),
    ],
)
declare(
    ConvGradWeight,
    "conv3d_grad_weight",
    "`conv2d_grad_weight` of volumes ``[N, C, D, H, W]``.",
    torch="",
    axes=3,
    attrs=weight_attrs(3),
    samples=[
        weight_case("one voxel", (1, 5, 1, 1, 1), 3, 1, 1, 1, kernel=1),
        weight_case("1x1x1", (2, 16, 3, 5, 4), 32, 3, 5, 4, kernel=1),
        weight_case("1x1x1, padded, strided", (1, 7, 4, 5, 6), 9, 3, 4, 4, kernel=1, before=1, stride=2),
        weight_case("3x3x3", (2, 17, 4, 6, 5), 20, 4, 6, 5, kernel=3, before=1),
        weight_case(
            "video stem", (1, 3, 5, 14, 15), 24, 5, 7, 8, kernel=(3, 7, 7), stride=(1, 2, 2), before=(1, 3, 3)
        ),
        weight_case("across frames", (2, 12, 5, 6, 7), 20, 5, 6, 7, kernel=(3, 1, 1), before=(1, 0, 0)),
        weight_case("grouped", (2, 32, 3, 5, 4), 64, 3, 5, 4, kernel=3, groups=4, before=1),
        weight_case("depthwise", (2, 37, 4, 6, 7), 37, 4, 6, 7, kernel=3, groups=37, before=1),
    ],
)
