"""Normalisations by stored statistics (batch), the input's own (layer, group) or nearby channels (lrn)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bslite.errors import SpecError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.along import AlongAxis
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, RowMap, Shape, case
from bslite.ops.values import Applied, Gradients, Value

EPS = Attr("eps", a.real_between(0), 1e-5, "added to the variance")
SIZES = Attr("normalized_shape", a.ints(1), doc="sizes of the trailing axes")
AFFINE = {"weight": False, "bias": False}
STATISTICS = {"running_mean": True, "running_var": True}


def channel_case(label: str, x: Shape, roles: Iterable[str] = AFFINE, **attrs: Any) -> Case:
    """A sample case with parameters of a number per channel."""
    return Case(label, [x], dict.fromkeys(roles, (x[1],)), attrs)


def trailing_case(label: str, x: Shape, axes: int, roles: Iterable[str] = AFFINE, **attrs: Any) -> Case:
    """A sample case over the last ``axes`` axes."""
    return Case(label, [x], dict.fromkeys(roles, x[-axes:]), {"normalized_shape": x[-axes:], **attrs})


class BatchNorm(Op):
    """Batch-norm of ``[N, C, ...]`` at inference: stored mean and variance, then scale and shift."""

    name = "batch_norm"
    kind = Kind.CHANNEL
    params = {**AFFINE, **STATISTICS}
    attrs = (EPS,)
    cost = 2  # the statistics fold into one scale and one shift per channel
    torch_name = "batch_norm"
    onnx_name = "BatchNormalization"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x = ins[0]
        checks.rank_at_least(self.name, x, 2, "[N, C, ...]")
        for role, got in params.items():
            checks.param_shape(self.name, role, got, (x[1],), f"(one per channel of the input {list(x)})")
        return x

    def with_values(self, ins: Sequence[Value], params: Mapping[str, Value], attrs: Attrs) -> Value:
        (x,) = ins
        scale = (params["running_var"] + attrs["eps"]).op("rsqrt")
        if "weight" in params:
            scale = params["weight"] * scale
        shift = -params["running_mean"] * scale
        if "bias" in params:
            shift = params["bias"] + shift
        wide = (x.shape[1], *(1,) * (len(x.shape) - 2))
        return x * scale.reshape(*wide) + shift.reshape(*wide)

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        """The statistics are constants: those of training are nodes of their own."""
        (x,) = at.inputs
        wide = (x.shape[1], *(1,) * (len(x.shape) - 2))
        rest = [i for i in range(len(x.shape)) if i != 1]
        scale = (at.param("running_var") + at.attrs["eps"]).op("rsqrt").reshape(*wide)
        made: dict[int | str, Value] = {}
        if "weight" in at.params:
            made["weight"] = (grad * (x - at.param("running_mean").reshape(*wide)) * scale).sum(*rest)
            scale = scale * at.param("weight").reshape(*wide)
        return made | {0: grad * scale, "bias": grad.sum(*rest)}

    samples = [
        channel_case("one pixel, one channel", (1, 1, 1, 1), (*AFFINE, *STATISTICS)),
        channel_case("image", (2, 19, 7, 6), (*AFFINE, *STATISTICS)),
        channel_case("many channels", (1, 131, 3, 5), (*AFFINE, *STATISTICS)),
        channel_case("large eps", (2, 5, 4, 4), (*AFFINE, *STATISTICS), eps=1e-3),
        channel_case("no scale, no shift", (3, 8, 5, 3), STATISTICS),
        channel_case("scale only", (2, 6, 3, 4), ("weight", *STATISTICS)),
        channel_case("shift only", (2, 6, 3, 4), ("bias", *STATISTICS)),
        channel_case("features", (5, 12), (*AFFINE, *STATISTICS)),
        channel_case("sequence", (2, 7, 11), (*AFFINE, *STATISTICS)),
        channel_case("volume", (2, 3, 4, 5, 6), (*AFFINE, *STATISTICS)),
    ]


class TrailingNorm(Op):
    """Base of the norms over the last axes, of sizes ``normalized_shape``."""

    kind = Kind.REDUCTION

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, want = ins[0], attrs["normalized_shape"]
        if not want:
            raise SpecError(f"op {self.name!r}: normalized_shape is empty, expected at least one size")
        if x[-len(want) :] != want:
            raise SpecError(
                f"op {self.name!r}: the input {list(x)} does not end in normalized_shape {list(want)}"
            )
        for role, got in params.items():
            checks.param_shape(self.name, role, got, want, "(normalized_shape)")
        return x

    def with_values(self, ins: Sequence[Value], params: Mapping[str, Value], attrs: Attrs) -> Value:
        return _scaled(ins[0].op(self.name, **attrs), params, attrs["normalized_shape"])

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        (x,), rank = at.inputs, len(at.inputs[0].shape)
        axes = range(rank - len(at.attrs["normalized_shape"]), rank)
        weight = at.param("weight") if "weight" in at.params else None
        standard, scale = _standardised(x, axes, at.attrs["eps"], centred=self.name == "layer_norm")
        made: dict[int | str, Value] = {
            0: _unstandardised(
                grad * weight if weight else grad, standard, scale, axes, centred=self.name == "layer_norm"
            )
        }
        shape = at.attrs["normalized_shape"]
        return made | {"weight": (grad * standard).sum_to(shape), "bias": grad.sum_to(shape)}

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return len(attrs["normalized_shape"]) < ranks[0]


class LayerNorm(TrailingNorm):
    """Subtracts the mean and divides by the standard deviation over the last axes, ``normalized_shape``."""

    name = "layer_norm"
    params = AFFINE
    attrs = (SIZES, EPS)
    cost = 8  # sum; subtract, square, add; scale; scale and shift (2); eps
    torch_name = "layer_norm"
    onnx_name = "LayerNormalization"

    samples = [
        trailing_case("two features", (1, 2), 1),
        trailing_case("tokens", (2, 7, 32), 1),
        trailing_case("odd width", (3, 37), 1),
        trailing_case("image, all of it", (2, 3, 5, 6), 3),
        trailing_case("last two axes", (2, 4, 5, 3), 2),
        trailing_case("whole tensor", (6, 5), 2),
        trailing_case("no scale, no shift", (4, 10), 1, roles=()),
        trailing_case("scale only, large eps", (4, 10), 1, roles=("weight",), eps=1e-2),
    ]


class RMSNorm(TrailingNorm):
    """Divides by the root of the mean square over the trailing axes ``normalized_shape``."""

    name = "rms_norm"
    params = {"weight": False}
    attrs = (SIZES, Attr("eps", a.real_between(0), 2.0**-23, "added to the mean square"))
    cost = 4
    torch_name = "rms_norm"
    onnx_name = "RMSNormalization"

    samples = [
        trailing_case("one element", (3, 1), 1, ("weight",)),
        trailing_case("tokens", (2, 9, 40), 1, ("weight",)),
        trailing_case("a vector", (19,), 1, ("weight",)),
        trailing_case("long rows", (3, 2300), 1, ("weight",)),
        trailing_case("no weight", (4, 33), 1, ()),
        trailing_case("large eps", (4, 33), 1, ("weight",), eps=0.5),
        trailing_case("two axes", (2, 3, 5, 7), 2, ("weight",)),
        trailing_case("channels of an image, last", (2, 5, 4, 24), 1, ("weight",)),
    ]


def _scaled(x: Value, params: Mapping[str, Value], shape: Shape) -> Value:
    """``x * weight + bias``, of those that there are."""
    if "weight" in params:
        x = x * params["weight"].reshape(*shape)
    return x + params["bias"].reshape(*shape) if "bias" in params else x


def _standardised(x: Value, axes: Sequence[int], eps: float, centred: bool) -> tuple[Value, Value]:
    """x less its mean, if ``centred``, over the root of its mean square; and one over that root."""
    if centred:
        x = x - x.mean(*axes, keepdim=True)
    scale = ((x * x).mean(*axes, keepdim=True) + eps).op("rsqrt")
    return x * scale, scale


def _unstandardised(grad: Value, standard: Value, scale: Value, axes: Sequence[int], centred: bool) -> Value:
    """The gradient of what `_standardised` takes."""
    along = standard * (grad * standard).mean(*axes, keepdim=True)
    if centred:
        grad = grad - grad.mean(*axes, keepdim=True)
    return scale * (grad - along)


class Normalize(AlongAxis):
    """Divides by the root of the sum of squares along ``axis``, or by ``eps`` where that is larger."""

    name = "normalize"
    kind = Kind.REDUCTION
    attrs = (Attr("axis", a.integer(), 1), Attr("eps", a.positive, 1e-12, "least divisor"))
    cost = 3
    torch_name = "normalize"
    onnx_name = "LpNormalization"

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        (x,), y, axis = at.inputs, at.output, at.attrs["axis"]
        norm = x.op("l2_norm", axes=[axis], keepdim=True)
        along = y * (grad * y).sum(axis, keepdim=True)
        least = at.attrs["eps"]
        return {0: (norm <= least).where(grad / least, (grad - along) / norm)}

    samples = [
        Case("one element", [(3, 1)], attrs={"axis": -1}),
        Case("heads", [(2, 3, 10, 32)], attrs={"axis": -1}),
        Case("channels", [(2, 19, 3, 4)]),
        Case("an axis in the middle", [(2, 3, 10, 5)], attrs={"axis": 2}),
        Case("batch", [(7, 4)], attrs={"axis": 0}),
        Case("long rows", [(2, 2300)]),
        Case("eps above the norm", [(4, 33)], attrs={"eps": 100.0}),
    ]


class GroupNorm(Op):
    """Normalises ``num_groups`` groups of channels of each image, each by its own mean and variance."""

    name = "group_norm"
    kind = Kind.REDUCTION
    params = AFFINE
    attrs = (Attr("num_groups", a.integer(1), doc="1 is a layer norm, C an instance norm"), EPS)
    cost = 8
    torch_name = "group_norm"
    onnx_name = "GroupNormalization"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, groups = ins[0], attrs["num_groups"]
        checks.rank_at_least(self.name, x, 2, "[N, C, ...]")
        if x[1] % groups:
            raise SpecError(
                f"op 'group_norm': {x[1]} channels of {list(x)} do not divide into num_groups={groups}"
            )
        for role, got in params.items():
            checks.param_shape(self.name, role, got, (x[1],), f"(one per channel of the input {list(x)})")
        return x

    def with_values(self, ins: Sequence[Value], params: Mapping[str, Value], attrs: Attrs) -> Value:
        (x,) = ins
        return _scaled(x.op(self.name, **attrs), params, (x.shape[1], *(1,) * (len(x.shape) - 2)))

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        (x,), groups = at.inputs, at.attrs["num_groups"]
        n, c, *sizes = x.shape
        wide, rest = (c, *(1,) * len(sizes)), [0, *range(2, len(x.shape))]
        apart = (n, groups, x.size // (n * groups))
        standard, scale = _standardised(x.reshape(*apart), [2], at.attrs["eps"], centred=True)
        scaled = grad * at.param("weight").reshape(*wide) if "weight" in at.params else grad
        by_x = _unstandardised(scaled.reshape(*apart), standard, scale, [2], centred=True)
        by_weight = (grad * standard.reshape(*x.shape)).sum(*rest)
        return {0: by_x.reshape(*x.shape), "weight": by_weight, "bias": grad.sum(*rest)}

    samples = [
        channel_case("one group", (2, 6, 3, 4), num_groups=1),
        channel_case("a group per channel", (2, 5, 4, 3), num_groups=5),
        channel_case("groups of four", (1, 32, 5, 5), num_groups=8),
        channel_case("odd groups", (3, 15, 2, 7), num_groups=3),
        channel_case("features", (4, 12), num_groups=3),
        channel_case("sequence", (2, 8, 9), num_groups=2),
        channel_case("no scale, no shift, large eps", (2, 6, 5, 5), num_groups=2, roles=(), eps=1e-2),
    ]


class LocalResponseNorm(Op):
    """AlexNet's normalisation of ``[N, C, ...]`` by the sum of squares over ``size`` adjacent channels.

    torch's form: ``alpha`` is divided by ``size``, and an even ``size`` reaches one channel further down than
    up (ONNX's reaches one further up).
    """

    name = "lrn"
    kind = Kind.REDUCTION
    attrs = (
        Attr("size", a.integer(1), doc="channels in the window"),
        Attr("alpha", a.real_between(0), 1e-4, "divided by size"),
        Attr("beta", a.real_between(0), 0.75, "exponent"),
        Attr("k", a.real_between(0), 1.0, "added to the scaled sum"),
    )
    torch_name = "local_response_norm"
    onnx_name = "LRN"

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        checks.rank_at_least(self.name, ins[0], 3, "[N, C, ...]")
        return ins[0]

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return (attrs["size"] + 5) * math.prod(out)  # square, window sum, scale and shift, power, divide

    def rows(self, params: ParamShapes, attrs: Attrs) -> RowMap:
        return RowMap()

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        """``g s^-b - 2 a b x W'(g x s^(-b - 1))``, s = k + a W(x^2), W the mean over the window."""
        (x,), size, beta = at.inputs, at.attrs["size"], at.attrs["beta"]
        c, shape = x.shape[1], x.shape
        flat = (shape[0], c, math.prod(shape[2:]))
        x, grad = x.reshape(*flat), grad.reshape(*flat)
        apart = np.arange(c)[None] - np.arange(c)[:, None]
        window = grad.tape.constant(((apart >= -(size // 2)) & (apart <= (size - 1) // 2)) / size)
        s = window.matmul(x * x) * at.attrs["alpha"] + at.attrs["k"]
        direct = grad * s.op("pow", -beta)
        around = window.transposed().matmul(direct * x / s)
        return {0: (direct - x * around * (2 * at.attrs["alpha"] * beta)).reshape(*shape)}

    samples = [
        case("one channel", (1, 1, 3, 3), size=5),
        case("AlexNet", (2, 20, 5, 6), size=5),
        case("strong", (2, 9, 4, 3), size=3, alpha=2.0, beta=0.5, k=2.0),
        case("even size", (1, 7, 3, 4), size=4, alpha=1.0),
        case("size 1", (2, 3, 4, 4), size=1, alpha=0.5),
        case("window wider than the channels", (2, 4, 3, 3), size=11, alpha=1.0),
        case("sequence", (2, 6, 8), size=3, alpha=1.0),
    ]
