"""Convolution of signals, images and volumes: dense, grouped and depthwise."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, RowMap, Shape, declare
from bslite.ops.values import Applied, Gradients, Value

#: How a value, and the taps of a filter, are written in messages, by the number of axes a window moves along.
LAYOUTS = {1: "[N, C, L]", 2: "[N, C, H, W]", 3: "[N, C, D, H, W]"}
TAPS = {1: "S", 2: "R, S", 3: "T, R, S"}


def conv_attrs(axes: int) -> tuple[Attr, ...]:
    """Attributes of a convolution along ``axes`` axes."""
    around = f"({', '.join((*a.STARTS[axes], *a.STOPS[axes]))})"
    return (
        Attr("stride", a.each(axes), (1,) * axes),
        Attr("padding", a.pads(axes), (0,) * (2 * axes), f"{around}, zeros"),
        Attr("dilation", a.each(axes), (1,) * axes),
        Attr("groups", a.integer(1), 1, "groups == C == K is depthwise"),
    )


class AnyConv(Op):
    """Base of the convolutions along one to three axes, of numbers of any kind."""

    kind = Kind.CONTRACTION
    axes: ClassVar[int]  # that a window moves along

    def rows(self, params: ParamShapes, attrs: Attrs) -> RowMap | None:
        if self.axes > 2:
            return None
        r = params["weight"][2]
        return RowMap(attrs["stride"][0], attrs["padding"][0], attrs["dilation"][0] * (r - 1) + 1)


class Conv(AnyConv):
    """Base of the convolutions of float32."""

    params = {"weight": True, "bias": False}

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, w, groups = ins[0], params["weight"], attrs["groups"]
        checks.rank(self.name, x, 2 + self.axes, LAYOUTS[self.axes])
        checks.rank(self.name, w, 2 + self.axes, f"a weight [K, C/groups, {TAPS[self.axes]}]")
        n, c, *sizes = x
        k, cg, *kernel = w
        if c != cg * groups:
            raise SpecError(
                f"op {self.name!r}: input has {c} channels, "
                f"weight {list(w)} with groups={groups} expects {cg * groups}"
            )
        if k % groups:
            raise SpecError(f"op {self.name!r}: {k} output channels do not divide into groups={groups}")
        if "bias" in params:
            checks.param_shape(self.name, "bias", params["bias"], (k,), "(one per output channel)")
        before, after = attrs["padding"][: self.axes], attrs["padding"][self.axes :]
        windows = zip(sizes, kernel, attrs["stride"], before, after, attrs["dilation"], strict=True)
        return n, k, *(checks.window_output(h, r, s, p + q, d) for h, r, s, p, q, d in windows)

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return 2 * math.prod(out) * math.prod(params["weight"][1:])

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        (x,), weight = at.inputs, at.param("weight").shape
        kernel, geometry = weight[2:], {k: at.attrs[k] for k in ("stride", "padding", "dilation", "groups")}
        pads = [sum(at.attrs["padding"][i :: self.axes]) for i in range(self.axes)]
        spans = [d * (r - 1) + 1 for r, d in zip(kernel, at.attrs["dilation"], strict=True)]
        sizes = zip(x.shape[2:], pads, spans, at.attrs["stride"], strict=True)
        over = [(size + pad - span) % step for size, pad, span, step in sizes]
        transposed = f"conv_transpose{self.axes}d"
        by_x = grad.tape.put(
            transposed, [grad], {"weight": at.params["weight"]}, output_padding=over, **geometry
        )
        by_weight = weight_gradient(x, grad, kernel, at.attrs)
        return {0: by_x, "weight": by_weight, "bias": grad.sum(0, *range(2, 2 + self.axes))}


def weight_gradient(x: Value, grad: Value, kernel: Shape, attrs: Attrs) -> Value:
    """``[K, C/groups, *kernel]``: of each weight the sum over all pixels of ``x`` times ``grad``."""
    axes = len(kernel)
    return x.op(
        f"conv{axes}d_grad_weight", grad, kernel=kernel, stride=attrs["stride"],
        before=attrs["padding"][:axes], dilation=attrs["dilation"], groups=attrs["groups"],
    )  # fmt: skip


def conv_case(
    label: str, x: Shape, k: int, *kernel: int, bias: bool = True, transposed: bool = False, **attrs: Any
) -> Case:
    """A sample case: input ``x``, ``k`` output channels."""
    groups = attrs.get("groups", 1)
    channels = (x[1], k // groups) if transposed else (k, x[1] // groups)
    params: dict[str, Shape] = {"weight": (*channels, *kernel)}
    if bias:
        params["bias"] = (k,)
    return Case(label, [x], params, attrs)


declare(
    Conv,
    "conv2d",
    "Cross-correlation of ``[N, C, H, W]`` with ``weight [K, C/groups, R, S]`` plus ``bias [K]``.",
    onnx="Conv",
    axes=2,
    attrs=conv_attrs(2),
    samples=[
        conv_case("1x1", (2, 16, 9, 7), 32, 1, 1),
        conv_case("1x1 one pixel", (1, 5, 1, 1), 3, 1, 1),
        conv_case("1x1 strided", (2, 24, 9, 8), 40, 1, 1, stride=2),
        conv_case("3x3 same", (2, 8, 10, 11), 16, 3, 3, padding=1),
        conv_case("3x3 valid, no bias", (1, 3, 8, 9), 5, 3, 3, bias=False),
        conv_case("3x3 strided", (3, 17, 15, 14), 33, 3, 3, stride=2, padding=1),
        conv_case("7x7 stem", (2, 3, 32, 30), 64, 7, 7, stride=2, padding=3),
        conv_case("11x11 stem", (1, 3, 63, 64), 48, 11, 11, stride=4, padding=2),
        conv_case("1x7 and 7x1 padding", (1, 12, 17, 17), 20, 1, 7, padding=(0, 3)),
        conv_case("asymmetric padding", (2, 6, 9, 10), 10, 3, 3, padding=(0, 1, 2, 3)),
        conv_case("asymmetric stride", (1, 7, 13, 12), 9, 3, 2, stride=(2, 3), padding=(1, 0)),
        conv_case("dilated", (1, 16, 17, 18), 24, 3, 3, dilation=2, padding=2),
        conv_case("asymmetric dilation", (2, 4, 14, 15), 8, 3, 3, dilation=(1, 3), padding=(1, 3)),
        conv_case("far beyond the sides", (2, 70, 9, 11), 24, 3, 3, dilation=6, padding=6),
        conv_case("beyond, strided", (1, 140, 5, 9), 44, 3, 4, dilation=4, stride=2, padding=5, groups=2),
        conv_case("one tap, dilated", (2, 64, 6, 4), 32, 1, 1, dilation=2, padding=(0, 3)),
        conv_case("one column, far beyond", (1, 128, 30, 1), 20, 3, 1, dilation=(12, 1), padding=(12, 0)),
        conv_case("kernel as large as the image", (2, 8, 5, 6), 12, 5, 6),
        conv_case("many channels, small image", (1, 160, 7, 7), 96, 3, 3, padding=1),
        conv_case("deep 1x1", (1, 640, 4, 4), 70, 1, 1),
        conv_case("grouped", (2, 32, 9, 9), 64, 3, 3, groups=4, padding=1),
        conv_case("grouped, thin", (1, 24, 8, 7), 12, 3, 3, groups=6, stride=2, padding=1),
        conv_case("depthwise 3x3", (2, 37, 11, 12), 37, 3, 3, groups=37, padding=1),
        conv_case("depthwise strided", (1, 96, 14, 15), 96, 3, 3, groups=96, stride=2, padding=1),
        conv_case("depthwise 5x5 dilated", (1, 16, 15, 13), 16, 5, 5, groups=16, dilation=2, padding=4),
        conv_case("depthwise, multiplier 2", (2, 18, 9, 8), 36, 3, 3, groups=18, padding=1),
        conv_case("groups of 4", (2, 44, 9, 8), 44, 3, 3, groups=11, padding=1),
        conv_case("groups of 8, strided", (1, 40, 11, 13), 40, 5, 3, groups=5, stride=2, padding=(2, 1)),
        conv_case("groups of 2, dilated", (2, 22, 9, 10), 22, 3, 3, groups=11, dilation=2, padding=2),
        conv_case("groups of 3 to 4, 1x1", (1, 18, 5, 6), 24, 1, 1, groups=6),
        conv_case("few outputs", (2, 40, 9, 8), 3, 3, 3, padding=1),
        conv_case("one output, 1x1", (1, 53, 5, 6), 1, 1, 1),
        conv_case("two outputs, strided, dilated", (1, 35, 11, 12), 2, 3, 2, stride=2, dilation=2, padding=1),
    ],
)
declare(
    Conv,
    "conv1d",
    "Cross-correlation of ``[N, C, L]`` with ``weight [K, C/groups, S]`` plus ``bias [K]``.",
    onnx="Conv",
    axes=1,
    attrs=conv_attrs(1),
    samples=[
        conv_case("one element", (1, 3, 1), 5, 1),
        conv_case("pointwise", (2, 16, 19), 33, 1),
        conv_case("3", (2, 17, 21), 20, 3, padding=1),
        conv_case("no bias, strided", (3, 8, 30), 16, 5, stride=2, padding=2, bias=False),
        conv_case("wide stem", (1, 1, 160), 24, 40, stride=8, padding=19),
        conv_case("one channel, a prime number of windows", (1, 1, 1214), 3, 24, stride=5),
        conv_case("asymmetric padding", (2, 6, 11), 10, 4, padding=(3, 0)),
        conv_case("causal, dilated", (1, 16, 33), 24, 2, dilation=8, padding=(8, 0)),
        conv_case("one tap, dilated", (2, 64, 7), 32, 1, dilation=2, padding=3),
        conv_case("far beyond the ends", (2, 64, 251), 20, 3, dilation=90, padding=90),
        conv_case("nowhere inside but one tap", (1, 1030, 7), 9, 3, dilation=20, padding=20),
        conv_case("kernel as long as the signal", (2, 8, 9), 12, 9),
        conv_case("padding wider than the signal", (1, 4, 3), 8, 7, padding=5),
        conv_case("many channels", (1, 1100, 6), 40, 3, padding=1),
        conv_case("grouped", (2, 32, 15), 48, 3, groups=4, padding=1),
        conv_case("depthwise", (2, 37, 18), 37, 7, groups=37, padding=3),
        conv_case("depthwise, dilated, strided", (1, 20, 31), 20, 3, groups=20, dilation=3, stride=2),
        conv_case("groups of 4", (2, 36, 18), 36, 7, groups=9, padding=3),
        conv_case("few outputs", (2, 33, 18), 2, 3, padding=1),
    ],
)
declare(
    Conv,
    "conv3d",
    "Cross-correlation of ``[N, C, D, H, W]`` with ``weight [K, C/groups, T, R, S]`` plus ``bias [K]``.",
    onnx="Conv",
    axes=3,
    attrs=conv_attrs(3),
    samples=[
        conv_case("one voxel", (1, 5, 1, 1, 1), 3, 1, 1, 1),
        conv_case("1x1x1", (2, 16, 3, 5, 4), 32, 1, 1, 1),
        conv_case("1x1x1, padded, strided", (1, 7, 4, 5, 6), 9, 1, 1, 1, padding=1, stride=2),
        conv_case("3x3x3", (2, 17, 4, 6, 5), 20, 3, 3, 3, padding=1),
        conv_case("3x3x3, no bias, strided", (1, 8, 5, 9, 7), 33, 3, 3, 3, stride=2, padding=1, bias=False),
        conv_case("not padded", (2, 6, 4, 5, 6), 8, 2, 3, 3),
        conv_case("video stem", (1, 3, 5, 14, 15), 24, 3, 7, 7, stride=(1, 2, 2), padding=(1, 3, 3)),
        conv_case("within frames", (2, 12, 3, 7, 9), 20, 1, 3, 3, padding=(0, 1, 1)),
        conv_case("within frames, strided", (2, 12, 5, 7, 9), 20, 1, 3, 3, padding=(0, 1, 1), stride=2),
        conv_case("across frames", (2, 12, 5, 6, 7), 20, 3, 1, 1, padding=(1, 0, 0)),
        conv_case(
            "across frames, strided", (1, 40, 6, 4, 5), 24, 3, 1, 1, padding=(1, 0, 0), stride=(2, 1, 1)
        ),
        conv_case(
            "across frames, strided everywhere", (1, 9, 6, 5, 7), 16, 3, 1, 1, padding=(1, 0, 0), stride=2
        ),
        conv_case("asymmetric padding", (2, 6, 4, 5, 7), 10, 3, 3, 3, padding=(0, 1, 2, 2, 0, 1)),
        conv_case("asymmetric stride", (1, 7, 6, 9, 8), 9, 2, 3, 2, stride=(1, 2, 3), padding=(1, 1, 0)),
        conv_case("dilated", (1, 16, 6, 8, 9), 24, 3, 3, 3, dilation=(2, 1, 2), padding=(2, 1, 2)),
        conv_case("one tap a plane, dilated", (2, 64, 3, 6, 4), 32, 3, 1, 1, dilation=2, padding=(2, 0, 3)),
        conv_case("planes and rows outside", (2, 48, 3, 5, 7), 24, 3, 3, 3, padding=1),
        conv_case("rows in parts", (1, 130, 3, 6, 5), 20, 2, 5, 3, stride=(1, 2, 1), padding=(1, 2, 1)),
        conv_case("kernel as large as the volume", (2, 8, 3, 4, 5), 12, 3, 4, 5),
        conv_case("many channels", (1, 520, 3, 3, 4), 40, 3, 3, 3, padding=1),
        conv_case("grouped", (2, 32, 3, 5, 4), 64, 3, 3, 3, groups=4, padding=1),
        conv_case("depthwise", (2, 37, 4, 6, 7), 37, 3, 3, 3, groups=37, padding=1),
        conv_case(
            "depthwise, strided", (1, 20, 5, 9, 8), 20, 3, 3, 3, groups=20, stride=(1, 2, 2), padding=1
        ),
        conv_case("depthwise across frames", (2, 20, 6, 4, 5), 20, 5, 1, 1, groups=20, padding=(2, 0, 0)),
        conv_case("depthwise within frames", (2, 20, 3, 6, 5), 20, 1, 5, 5, groups=20, padding=(0, 2, 2)),
        conv_case("depthwise, dilated", (1, 18, 6, 7, 9), 18, 2, 3, 3, groups=18, dilation=2, padding=2),
        conv_case("groups of 4", (2, 20, 4, 6, 7), 20, 3, 3, 3, groups=5, padding=1),
        conv_case("groups of 2, across frames", (1, 20, 6, 4, 5), 20, 5, 1, 1, groups=10, padding=(2, 0, 0)),
        conv_case("few outputs", (1, 33, 4, 5, 6), 2, 3, 3, 3, padding=1),
    ],
)
