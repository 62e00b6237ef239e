"""Images as columns of windows, and back: what torch calls unfold and fold, others im2col and col2im."""

import math
from collections.abc import Sequence
from typing import Any

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, Shape, case
from bslite.ops.values import Applied, Gradients, Value


def positions(sizes: Sequence[int], attrs: Attrs) -> tuple[int, ...]:
    """How many windows lie along each axis. May be below 1."""
    kernel, pads = attrs["kernel"], attrs["padding"]
    axes = len(kernel)
    return tuple(
        checks.window_output(size, k, st, pads[i] + pads[i + axes], d)
        for i, (size, k, st, d) in enumerate(
            zip(sizes, kernel, attrs["stride"], attrs["dilation"], strict=True)
        )
    )


class Unfold(Op):
    """Every window of an image as a column: ``y[n, (c, i, j), (p, q)] = x[n, c, p*s + i*d, q*s + j*d]``."""

    name = "unfold"
    kind = Kind.MOVEMENT
    carries = True
    attrs = (
        Attr("kernel", a.each(2)),
        Attr("stride", a.each(2), (1, 1)),
        Attr("padding", a.pads(2), (0, 0, 0, 0), "zeros around the image"),
        Attr("dilation", a.each(2), (1, 1)),
    )
    torch_name = "unfold, im2col"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        checks.rank(self.name, ins[0], 4, "images [N, C, H, W]")
        windows = positions(ins[0][2:], attrs)
        if min(windows) < 1:
            raise SpecError(f"op 'unfold': the image {list(ins[0])} is too small for {dict(attrs)}")
        return (ins[0][0], ins[0][1] * math.prod(attrs["kernel"]), math.prod(windows))

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        return {0: grad.op("fold", output_size=at.inputs[0].shape[2:], **at.attrs)}

    samples = [
        case("pixels", (2, 3, 4, 5), kernel=1),
        case("the whole image", (2, 3, 4, 5), kernel=(4, 5)),
        case("windows", (2, 3, 4, 5), kernel=(2, 3)),
        case("patches", (2, 19, 8, 12), kernel=4, stride=4),
        case("padded", (1, 3, 4, 5), kernel=3, padding=(1, 2)),
        case("padded unevenly", (1, 3, 4, 5), kernel=3, padding=(0, 2, 1, 0), stride=(2, 1)),
        case("dilated", (2, 3, 9, 8), kernel=(3, 2), dilation=(2, 3), stride=(1, 2), padding=1),
        case("integers", (1, 2, 4, 4), dtypes=["int64"], kernel=2, padding=1),
    ]


class Fold(Op):
    """Columns put back where their windows lie, those that overlap added up; along one to three axes.

    ``y[n, c, h, w] = sum of x[n, (c, i, j), (p, q)]`` over ``h = p*s + i*d - pad``, and so for w.
    """

    name = "fold"
    kind = Kind.REDUCTION
    attrs = (
        Attr("output_size", a.ints(1), doc="one for each axis"),
        Attr("kernel", a.ints(1)),
        Attr("stride", a.ints(1)),
        Attr("padding", a.ints(0), doc="before all axes, then after"),
        Attr("dilation", a.ints(1)),
    )
    torch_name = "fold, col2im"
    onnx_name = "Col2Im"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, size, kernel = ins[0], attrs["output_size"], attrs["kernel"]
        checks.rank(self.name, x, 3, "columns [N, C * kernel, L]")
        counts = [len(size), len(attrs["stride"]), len(attrs["padding"]) / 2, len(attrs["dilation"])]
        if not 1 <= len(kernel) <= 3 or any(n != len(kernel) for n in counts):
            raise SpecError(f"op 'fold': {dict(attrs)}, expected one to three axes, as many of each")
        windows = positions(size, attrs)
        if min(windows) < 1 or x[1] % math.prod(kernel) or x[2] != math.prod(windows):
            raise SpecError(
                f"op 'fold': columns {list(x)}; windows {list(kernel)} of an image {list(size)} stand in "
                f"{list(windows)} places: expected [N, C * {math.prod(kernel)}, {math.prod(windows)}]"
            )
        return (x[0], x[1] // math.prod(kernel), *size)

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return math.prod(ins[0])

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        given = {k: v for k, v in at.attrs.items() if k != "output_size"}
        return {0: columns(grad, **given)}

    def cases(self) -> Sequence[Case]:
        def case(label: str, n: int, channels: int, size: Shape, kernel: Shape, **attrs: Any) -> Case:
            axes = len(size)
            given = {
                "output_size": size, "kernel": kernel, "stride": (1,) * axes, "padding": (0,) * 2 * axes,
                "dilation": (1,) * axes, **attrs,
            }  # fmt: skip
            columns = (n, channels * math.prod(kernel), math.prod(positions(size, given)))
            return Case(label, [columns], attrs=given)

        return [
            case("pixels", 2, 3, (4, 5), (1, 1)),
            case("the whole image", 2, 3, (4, 5), (4, 5)),
            case("windows", 2, 3, (4, 5), (2, 3)),
            case("patches", 2, 19, (8, 12), (4, 4), stride=(4, 4)),
            case("padded", 1, 3, (4, 5), (3, 3), padding=(1, 2, 1, 2)),
            case("padded unevenly", 1, 3, (4, 5), (3, 3), padding=(0, 2, 1, 0), stride=(2, 1)),
            case("gaps", 1, 2, (9, 8), (2, 2), stride=(3, 5)),
            case("dilated", 2, 3, (9, 8), (3, 2), dilation=(2, 3), stride=(1, 2), padding=(1, 1, 1, 1)),
            case("a line", 2, 3, (11,), (4,), stride=(2,), padding=(1, 2)),
            case("pieces of a line", 1, 2, (2600,), (40,), stride=(16,), padding=(3, 5)),
            case("gaps in a line", 2, 3, (300,), (20,), stride=(33,), padding=(4, 9)),
            case("a long line", 1, 1, (9000,), (512,), stride=(128,), padding=(256, 256)),
            case("a volume", 1, 2, (3, 4, 5), (2, 2, 3), stride=(1, 2, 1), padding=(0, 1, 1, 0, 1, 1)),
        ]


def columns(x: Value, kernel: Shape, stride: Shape, dilation: Shape, padding: Sequence[int] = ()) -> Value:
    """Each window of ``x [N, C, ...]``, along up to three axes, as a column: ``[N, C * kernel, windows]``."""
    axes = len(kernel)
    if padding:
        x = x.padded((0, 0, *padding[:axes]), (0, 0, *padding[axes:]))
    n, c, *sizes = x.shape
    if axes == 1:
        x, kernel, stride, dilation = x.reshape(n, c, 1, *sizes), (1, *kernel), (1, *stride), (1, *dilation)
    if axes < 3:
        return x.op("unfold", kernel=kernel, stride=stride, dilation=dilation)
    (taps, *inner), (step, *steps), (apart, *dilations) = kernel, stride, dilation
    count = checks.window_output(sizes[0], taps, step, 0, apart)
    found = []
    for t in range(taps):  # frame by frame of the window
        start = t * apart
        frames = x.op("slice", axis=2, start=start, stop=start + (count - 1) * step + 1, step=step)
        images = frames.permute(0, 2, 1, 3, 4).reshape(n * count, c, *sizes[1:])
        part = images.op("unfold", kernel=inner, stride=steps, dilation=dilations)
        apart_by_frame = part.reshape(n, count, c, math.prod(inner), part.shape[-1]).permute(0, 2, 3, 1, 4)
        found.append(apart_by_frame.reshape(n, c, 1, math.prod(inner), count * part.shape[-1]))
    whole = found[0].op("concat", *found[1:], axis=2)
    return whole.reshape(n, c * math.prod(kernel), whole.shape[-1])
