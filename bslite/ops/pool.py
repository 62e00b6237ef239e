"""Pooling over windows of a signal, an image or a volume, and adaptive pooling, whose windows divide it.

Global pooling is adaptive pooling with ``output_size`` 1.
"""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, ClassVar

from bslite.errors import SpecError, UnsupportedError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.conv import LAYOUTS
from bslite.ops.core import Attr, Attrs, Kind, Op, ParamShapes, RowMap, Shape, case, declare
from bslite.ops.values import Applied, Gradients, Value

CEIL = Attr("ceil_mode", a.boolean, False, "keep a last window that does not fit, if it starts in the image")


def pooled_size(
    size: int, kernel: int, stride: int, before: int, after: int, dilation: int, ceil_mode: bool
) -> int:
    """Number of windows along one axis, as torch counts them. May be < 1.

    With ``ceil_mode`` one more window may reach beyond the padding, but it has to start inside the image or
    the padding before it.
    """
    if not ceil_mode:
        return checks.window_output(size, kernel, stride, before + after, dilation)
    out = checks.window_output(size + stride - 1, kernel, stride, before + after, dilation)
    return out - 1 if (out - 1) * stride >= size + before else out


def window_attrs(axes: int, what: str) -> tuple[Attr, ...]:
    """Attributes of a window that moves along ``axes`` axes padded by ``what``."""
    around = f"({', '.join((*a.STARTS[axes], *a.STOPS[axes]))})"
    return (
        Attr("kernel", a.each(axes)),
        Attr("stride", a.optional(a.each(axes)), None, "None: the kernel's size"),
        Attr("padding", a.pads(axes), (0,) * (2 * axes), f"{around}, {what}"),
        Attr("dilation", a.each(axes), (1,) * axes),
        CEIL,
    )


def avg_attrs(axes: int) -> tuple[Attr, ...]:
    """Attributes of an average over windows."""
    return (
        *window_attrs(axes, "zeros"),
        Attr("count_include_pad", a.boolean, True, "the divisor counts padding, but nothing beyond it"),
        Attr("divisor_override", a.optional(a.integer(1)), None, "divide by this instead"),
    )


class WindowPool(Op):
    """Base of the pools with a sliding window: attributes kernel, stride, padding, dilation, ceil_mode."""

    kind = Kind.WINDOW
    axes: ClassVar[int] = 2  # that a window moves along

    def geometry(self, attrs: Attrs) -> tuple[Shape, Shape, Shape]:
        """Kernel, stride and dilation along each axis, the defaults filled in."""
        kernel: Shape = attrs["kernel"]
        return kernel, attrs["stride"] or kernel, attrs["dilation"]

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        checks.rank(self.name, ins[0], 2 + self.axes, LAYOUTS[self.axes])
        n, c, *sizes = ins[0]
        kernel, stride, dilation = self.geometry(attrs)
        pads = attrs["padding"]
        before, after = pads[: self.axes], pads[self.axes :]
        if any(2 * max(p, q) > r for p, q, r in zip(before, after, kernel, strict=True)):
            sides = ", ".join((*a.STARTS[self.axes], *a.STOPS[self.axes]))
            raise SpecError(
                f"op {self.name!r}: padding {list(pads)} ({sides}) "
                f"is more than half the kernel {list(kernel)}, so a window could lie outside the image"
            )
        windows = zip(sizes, kernel, stride, before, after, dilation, strict=True)
        return n, c, *(pooled_size(h, r, s, p, q, d, attrs["ceil_mode"]) for h, r, s, p, q, d in windows)

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return math.prod(out) * math.prod(attrs["kernel"])  # a comparison counts as an addition does

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        (x,), (kernel, stride, dilation) = at.inputs, self.geometry(at.attrs)
        n, c, *out = grad.shape
        before = at.attrs["padding"][: self.axes]
        how = {"kernel": kernel, "stride": stride, "before": before, "dilation": dilation}
        if "max" in self.name:
            places = x.op("max_pool_places", windows=out, **how)
            return {0: grad.op("pool_grad", places, size=x.shape[2:], **how)}
        flat = grad.reshape(n, c, 1, math.prod(out)) / grad.tape.constant(self._counts(at, out))
        return {0: flat.reshape(*grad.shape).op("pool_grad", size=x.shape[2:], **how)}

    def _counts(self, at: Applied, out: Sequence[int]) -> list[float]:
        """What an average divides each window's sum by."""
        if at.attrs["divisor_override"]:
            return [float(at.attrs["divisor_override"])]
        counts: list[float] = [1.0]
        pads, (kernel, stride, dilation) = at.attrs["padding"], self.geometry(at.attrs)
        for i, (size, m) in enumerate(zip(at.inputs[0].shape[2:], out, strict=True)):
            before, after = pads[i], pads[self.axes + i]
            if at.attrs["count_include_pad"]:
                low, high = -before, size + after
            else:
                low, high = 0, size
            starts = (j * stride[i] - before for j in range(m))
            along = [sum(low <= s + t * dilation[i] < high for t in range(kernel[i])) for s in starts]
            counts = [a * b for a in counts for b in along]
        return counts

    def rows(self, params: ParamShapes, attrs: Attrs) -> RowMap | None:
        if self.axes > 2:
            return None
        kernel, stride, dilation = self.geometry(attrs)
        return RowMap(stride[0], attrs["padding"][0], dilation[0] * (kernel[0] - 1) + 1)


#: Cases of windows along two axes.
IMAGES = [
    case("one pixel", (1, 1, 1, 1), kernel=1),
    case("2x2", (2, 5, 8, 6), kernel=2),
    case("2x2, odd image", (1, 3, 7, 9), kernel=2),
    case("3x3 stem", (2, 17, 14, 15), kernel=3, stride=2, padding=1),
    case("3x3 overlapping", (1, 4, 9, 8), kernel=3, stride=1, padding=1),
    case("as large as the image", (2, 6, 5, 7), kernel=(5, 7)),
    case("stride over the kernel", (1, 3, 11, 10), kernel=2, stride=(3, 4)),
    case("asymmetric", (2, 3, 10, 11), kernel=(2, 3), stride=(1, 2), padding=(1, 0)),
    case("asymmetric padding", (1, 4, 7, 8), kernel=3, stride=2, padding=(0, 1, 1, 0)),
    case("ceil", (2, 4, 8, 7), kernel=3, stride=2, ceil_mode=True),
    case("ceil, exact", (1, 4, 9, 9), kernel=3, stride=2, ceil_mode=True),
    case("ceil, padded", (1, 5, 6, 7), kernel=3, stride=2, padding=1, ceil_mode=True),
    case("ceil, last window dropped", (1, 2, 5, 6), kernel=2, stride=4, padding=1, ceil_mode=True),
    case("ceil, window beyond the padding", (2, 3, 7, 9), kernel=4, stride=3, padding=2, ceil_mode=True),
    case("ceil, smaller than the kernel", (1, 2, 2, 2), kernel=3, stride=2, ceil_mode=True),
]
declare(
    WindowPool,
    "max_pool2d",
    "Largest element of each window; the padding never wins, NaN always does.",
    onnx="MaxPool",
    attrs=window_attrs(2, "minus infinity"),
    samples=[
        *IMAGES,
        case("dilated", (2, 3, 9, 8), kernel=3, stride=1, dilation=2),
        case(
            "dilated, padded, ceil", (1, 4, 8, 11), kernel=3, stride=2, dilation=2, padding=1, ceil_mode=True
        ),
        case("dilated one way", (1, 2, 9, 5), kernel=(3, 2), dilation=(2, 1), padding=(1, 1)),
    ],
)
BARE: dict[str, Any] = {"kernel": 3, "count_include_pad": False}
declare(
    WindowPool,
    "avg_pool2d",
    "Sum of each window over the number of its elements; see the attributes for what counts as one.",
    onnx="AveragePool",
    attrs=avg_attrs(2),
    samples=[
        *IMAGES,
        case("3x3 padding not counted", (2, 5, 9, 8), stride=1, padding=1, **BARE),
        case("asymmetric padding not counted", (1, 4, 7, 8), padding=(1, 0, 0, 1), **BARE),
        case("ceil, padding not counted", (1, 5, 6, 7), stride=2, padding=1, ceil_mode=True, **BARE),
        case("dilated", (2, 3, 9, 8), kernel=3, stride=1, dilation=2),
        case(
            "dilated, padded", (1, 4, 8, 11), kernel=(3, 2), stride=2, dilation=(2, 3), padding=(1, 0, 0, 1)
        ),
        case("dilated, padding not counted", (1, 4, 8, 11), stride=2, dilation=2, padding=1, **BARE),
        case("divisor given", (1, 3, 8, 8), kernel=2, divisor_override=3),
        case(
            "divisor given, ceil, padded", (2, 3, 7, 6),
            kernel=3, stride=2, padding=1, ceil_mode=True, divisor_override=1,
        ),
    ],
)  # fmt: skip


def adaptive_attrs(axes: int) -> tuple[Attr, ...]:
    """The size of the output along ``axes`` axes."""
    sizes = a.each_of(a.optional(a.integer(1)), axes)
    return (Attr("output_size", sizes, doc="None: the input's size; 1: global"),)


class AdaptivePool(Op):
    """Base of the pools to a given size: window i of n spans rows ``floor(iH/n)`` to ``ceil((i+1)H/n)``."""

    kind = Kind.WINDOW
    axes: ClassVar[int] = 2  # that a window moves along

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        checks.rank(self.name, ins[0], 2 + self.axes, LAYOUTS[self.axes])
        n, c, *sizes = ins[0]
        return n, c, *(want or have for want, have in zip(attrs["output_size"], sizes, strict=True))

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return math.prod(out) * math.prod(math.ceil(h / p) for h, p in zip(ins[0][2:], out[2:], strict=True))

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        (x,), out = at.inputs, grad.shape[2:]
        if "max" in self.name:
            return {0: self._to_largest(x, grad)}
        for axis, (size, m) in enumerate(zip(x.shape[2:], out, strict=True), start=2):
            if m == 1:
                grad = grad * (1 / size)
                continue
            spans = [range(i * size // m, -(-(i + 1) * size // m)) for i in range(m)]
            shares = [[(j in span) / len(span) for j in range(size)] for span in spans]
            order = [*(i for i in range(len(x.shape)) if i != axis), axis]
            back = sorted(range(len(order)), key=order.__getitem__)
            grad = grad.permute(*order).matmul(grad.tape.constant(shares)).permute(*back)
        return {0: grad.expand(x.shape)}

    def _to_largest(self, x: Value, grad: Value) -> Value:
        """``grad`` at the place of the largest element of each window, the first of several."""
        sizes, out = x.shape[2:], grad.shape[2:]
        if any(size % m for size, m in zip(sizes, out, strict=True)):
            raise UnsupportedError(f"op {self.name!r} has a gradient for windows of one size only")
        window = [size // m for size, m in zip(sizes, out, strict=True)]
        axes = range(len(out))
        order = [0, 1, *(2 + 2 * a for a in axes), *(3 + 2 * a for a in axes)]
        back = sorted(range(len(order)), key=order.__getitem__)
        apart = x.reshape(*x.shape[:2], *chain(*zip(out, window, strict=True))).permute(*order)
        rows = apart.reshape(*x.shape[:2], math.prod(out), math.prod(window))
        hit = rows.op("argmax", axis=3, keepdim=True).op(
            "equal", grad.tape.constant(list(range(math.prod(window))), "int64")
        )
        made = hit.where(grad.reshape(*rows.shape[:3], 1), 0.0)
        return made.reshape(*apart.shape).permute(*back).reshape(*x.shape)

    samples = [
        case("global", (2, 19, 7, 7), output_size=1),
        case("global of one pixel", (1, 3, 1, 1), output_size=1),
        case("even division", (2, 4, 12, 8), output_size=(6, 4)),
        case("overlapping windows", (1, 5, 13, 11), output_size=(6, 6)),
        case("same size", (1, 3, 5, 4), output_size=(5, 4)),
        case("larger than the input", (2, 3, 3, 2), output_size=(7, 5)),
        case("one pixel to many", (1, 4, 1, 1), output_size=3),
        case("height kept", (1, 3, 6, 9), output_size=(None, 2)),
        case("width kept", (1, 3, 6, 9), output_size=(1, None)),
    ]


declare(
    AdaptivePool,
    "adaptive_avg_pool2d",
    "Mean of each window; global average pooling at ``output_size`` 1.",
    onnx="GlobalAveragePool",
    attrs=adaptive_attrs(2),
)
declare(
    AdaptivePool,
    "adaptive_max_pool2d",
    "Largest element of each window, NaN above all; global max pooling at ``output_size`` 1.",
    onnx="GlobalMaxPool",
    attrs=adaptive_attrs(2),
)
