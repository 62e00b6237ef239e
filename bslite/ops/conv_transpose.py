"""Transposed convolution of signals, images and volumes: what the gradient of a convolution computes."""

import functools
import math
from collections.abc import Sequence
from typing import ClassVar

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.conv import LAYOUTS, TAPS, conv_case, weight_gradient
from bslite.ops.core import Attr, Attrs, Kind, Op, ParamShapes, Shape, declare
from bslite.ops.values import Applied, Gradients, Value


def transposed_attrs(axes: int) -> tuple[Attr, ...]:
    """Attributes of a transposed convolution along ``axes`` axes."""
    around = f"({', '.join((*a.STARTS[axes], *a.STOPS[axes]))})"
    return (
        Attr("stride", a.each(axes), (1,) * axes, "between the outputs of neighbouring inputs"),
        Attr("padding", a.pads(axes), (0,) * (2 * axes), f"{around}, cut off the output"),
        Attr("output_padding", a.each(axes, 0), (0,) * axes, "added to the size of the output at its end"),
        Attr("dilation", a.each(axes), (1,) * axes),
        Attr("groups", a.integer(1), 1),
    )


class ConvTranspose(Op):
    """Base of the transposed convolutions; see `ConvTranspose2d`."""

    kind = Kind.CONTRACTION
    params = {"weight": True, "bias": False}
    onnx_name = "ConvTranspose"
    axes: ClassVar[int]  # that a window moves along

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, w, groups = ins[0], params["weight"], attrs["groups"]
        checks.rank(self.name, x, 2 + self.axes, LAYOUTS[self.axes])
        checks.rank(self.name, w, 2 + self.axes, f"a weight [C, K/groups, {TAPS[self.axes]}]")
        n, c, *sizes = x
        wc, kg, *kernel = w
        if c != wc:
            raise SpecError(f"op {self.name!r}: input has {c} channels, weight {list(w)} expects {wc}")
        if c % groups:
            raise SpecError(f"op {self.name!r}: {c} input channels do not divide into groups={groups}")
        if "bias" in params:
            checks.param_shape(self.name, "bias", params["bias"], (kg * groups,), "(one per output channel)")
        stride, dilation, more = attrs["stride"], attrs["dilation"], attrs["output_padding"]
        for extra, s, d in zip(more, stride, dilation, strict=True):
            if extra >= max(s, d):
                raise SpecError(
                    f"op {self.name!r}: output_padding={list(more)}, expected less than the stride "
                    f"{list(stride)} or the dilation {list(dilation)}"
                )
        before, after = attrs["padding"][: self.axes], attrs["padding"][self.axes :]
        windows = zip(sizes, kernel, stride, before, after, dilation, more, strict=True)
        return n, kg * groups, *((h - 1) * s - p - q + d * (r - 1) + e + 1 for h, r, s, p, q, d, e in windows)

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return 2 * math.prod(ins[0]) * math.prod(params["weight"][1:])  # what is cut off counts, too

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        (x,), weight = at.inputs, at.param("weight").shape
        geometry = {k: at.attrs[k] for k in ("stride", "padding", "dilation", "groups")}
        by_x = grad.tape.put(f"conv{self.axes}d", [grad], {"weight": at.params["weight"]}, **geometry)
        for axis, size in enumerate(x.shape):  # output_padding as large as the stride makes one pixel more
            by_x = by_x.sliced(axis, 0, size)
        by_weight = weight_gradient(grad, x, weight[2:], at.attrs)
        return {0: by_x, "weight": by_weight, "bias": grad.sum(0, *range(2, 2 + self.axes))}


transposed_case = functools.partial(conv_case, transposed=True)
declare(
    ConvTranspose,
    "conv_transpose1d",
    "The transpose of `conv1d`: ``[N, C, L]`` with ``weight [C, K/groups, S]`` plus ``bias [K]``.",
    onnx="ConvTranspose",
    axes=1,
    attrs=transposed_attrs(1),
    samples=[
        transposed_case("one element", (1, 3, 1), 5, 1),
        transposed_case("doubled", (2, 17, 9), 20, 4, stride=2, padding=1),
        transposed_case("stride over the kernel", (1, 6, 5), 8, 2, stride=3, output_padding=2),
        transposed_case("doubled, one channel", (2, 17, 9), 1, 2, stride=2),
        transposed_case("vocoder", (1, 20, 7), 12, 16, stride=8, padding=4),
        transposed_case("asymmetric padding", (2, 6, 8), 10, 5, stride=2, padding=(3, 0)),
        transposed_case("dilated", (1, 8, 9), 6, 3, stride=2, dilation=3, padding=2, bias=False),
        transposed_case("one tap, dilated", (2, 300, 6), 32, 1, dilation=2, output_padding=1),
        transposed_case("grouped", (2, 8, 7), 12, 3, stride=2, groups=4),
    ],
)


class ConvTranspose2d(ConvTranspose):
    """The transpose of `conv2d`: ``[N, C, H, W]`` with ``weight [C, K/groups, R, S]`` plus ``bias [K]``.

    Every input element adds the filter, scaled by it, to the output, ``stride`` further on than its
    neighbour's.
    """

    name = "conv_transpose2d"
    axes = 2
    attrs = transposed_attrs(2)
    torch_name = "conv_transpose2d"

    samples = [
        transposed_case("one pixel", (1, 5, 1, 1), 3, 1, 1),
        transposed_case("1x1", (2, 16, 5, 4), 32, 1, 1),
        transposed_case("2x2 doubled", (2, 17, 5, 6), 20, 2, 2, stride=2),
        transposed_case("2x2 doubled, one channel", (2, 19, 5, 6), 1, 2, 2, stride=2),
        transposed_case("3x2 apart, three channels", (1, 9, 4, 7), 3, 3, 2, stride=(3, 2), bias=False),
        transposed_case("3x3", (2, 12, 6, 5), 33, 3, 3, padding=1),
        transposed_case("3x3 doubled", (1, 16, 7, 6), 24, 3, 3, stride=2, padding=1, output_padding=1),
        transposed_case("4x4 doubled, no bias", (2, 9, 5, 7), 16, 4, 4, stride=2, padding=1, bias=False),
        transposed_case(
            "stride over the kernel", (1, 6, 4, 5), 8, 2, 3, stride=(3, 4), output_padding=(1, 2)
        ),
        transposed_case("from a vector", (2, 40, 1, 1), 24, 4, 4),
        transposed_case("asymmetric padding", (2, 6, 5, 6), 10, 3, 4, stride=2, padding=(0, 1, 2, 3)),
        transposed_case("padding over the kernel", (1, 4, 9, 8), 6, 3, 3, stride=2, padding=4),
        transposed_case("dilated", (1, 8, 6, 5), 12, 3, 3, dilation=2, padding=2),
        transposed_case("dilated, strided", (1, 8, 6, 5), 12, 3, 2, stride=2, dilation=(3, 2), padding=1),
        transposed_case("many channels", (1, 1100, 3, 4), 20, 2, 2, stride=2),
        transposed_case("grouped", (2, 32, 5, 4), 48, 3, 3, stride=2, groups=4, padding=1),
        transposed_case("depthwise", (2, 37, 6, 5), 37, 4, 4, stride=2, padding=1, groups=37),
        transposed_case("depthwise, dilated", (1, 20, 6, 5), 20, 3, 3, dilation=2, padding=1, groups=20),
        transposed_case("depthwise, multiplier 2", (2, 18, 4, 5), 36, 3, 3, stride=2, groups=18),
    ]


declare(
    ConvTranspose,
    "conv_transpose3d",
    "The transpose of `conv3d`: ``[N, C, D, H, W]``, ``weight [C, K/groups, T, R, S]`` plus ``bias [K]``.",
    onnx="ConvTranspose",
    axes=3,
    attrs=transposed_attrs(3),
    samples=[
        transposed_case("one voxel", (1, 5, 1, 1, 1), 3, 1, 1, 1),
        transposed_case("2x2x2 doubled", (2, 17, 3, 4, 5), 20, 2, 2, 2, stride=2),
        transposed_case(
            "3x3x3 doubled", (1, 16, 3, 4, 3), 24, 3, 3, 3, stride=2, padding=1, output_padding=1
        ),
        transposed_case("3x3x3", (2, 6, 3, 4, 5), 8, 3, 3, 3, padding=1, bias=False),
        transposed_case("within frames", (1, 8, 3, 4, 5), 6, 1, 4, 4, stride=(1, 2, 2), padding=(0, 1, 1)),
        transposed_case("stride over the kernel", (1, 4, 2, 3, 3), 6, 1, 2, 1, stride=(2, 3, 2)),
        transposed_case(
            "asymmetric padding", (1, 6, 3, 4, 4), 7, 3, 3, 3, stride=2, padding=(0, 1, 2, 2, 0, 1)
        ),
        transposed_case("dilated", (1, 8, 4, 5, 4), 6, 2, 3, 2, stride=(1, 2, 1), dilation=(2, 1, 3)),
        transposed_case("grouped", (2, 16, 2, 3, 4), 24, 3, 3, 3, stride=2, groups=4, padding=1),
        transposed_case("depthwise", (1, 20, 3, 4, 5), 20, 4, 4, 4, stride=2, padding=1, groups=20),
    ],
)
