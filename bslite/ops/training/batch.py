"""Batch norm in training: statistics of the batch that are values, and what its gradient sums up."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

from bslite.errors import SpecError, UnsupportedError
from bslite.ops import attrs as a
from bslite.ops import checks
from bslite.ops.core import Attr, Attrs, Case, Kind, Op, ParamShapes, Shape, case
from bslite.ops.normalize import EPS
from bslite.ops.training.slopes import SLOPES
from bslite.ops.values import Applied, Gradients, Value

#: Sizes of values in the cases of all these ops.
SHAPES: Sequence[tuple[str, Shape]] = (
    ("one channel", (2, 1, 3, 1)),
    ("image", (2, 19, 7, 6)),
    ("many channels, one image", (1, 131, 3, 5)),
    ("large image", (3, 8, 33, 40)),
    ("features", (37, 12)),
    ("pixels of one", (9, 20, 1, 1)),
    ("sequence", (4, 7, 601)),
    ("volume", (2, 3, 4, 5, 6)),
)


def wide(x: Value) -> Shape:
    """The shape in which a number per channel is broadcast to ``[N, C, ...]``."""
    return (x.shape[1], *(1,) * (len(x.shape) - 2))


def moment(stats: Value, which: int) -> Value:
    """The means (0) or variances (1) of ``[2, C]``, as ``[C]``."""
    return stats.sliced(0, which, which + 1).reshape(stats.shape[1])


def both(first: Value, second: Value) -> Value:
    """Two vectors ``[C]`` as ``[2, C]``."""
    return first.reshape(1, *first.shape).op("concat", second.reshape(1, *second.shape), axis=0)


class BatchOp(Op):
    """Base of the ops on ``[N, C, ...]`` and statistics ``[2, C]``: mean and variance of every channel."""

    def keeps_images_apart(self, ranks: Sequence[int], attrs: Attrs) -> bool:
        return ranks[0] > 2  # the pixels of features are those of all images

    def _check(self, x: Shape, stats: Shape) -> None:
        checks.rank_at_least(self.name, x, 2, "[N, C, ...]")
        checks.param_shape(self.name, "stats", stats, (2, x[1]), f"(mean and variance of {x[1]} channels)")


class BatchStats(BatchOp):
    """Mean and variance of every channel over images and pixels, ``[2, C]``; the variance divides by n."""

    name = "batch_stats"
    kind = Kind.REDUCTION
    sums_images = True

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        checks.rank_at_least(self.name, ins[0], 2, "[N, C, ...]")
        return (2, ins[0][1])

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return 4 * math.prod(ins[0])  # sum; subtract, square, add

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        (x,) = at.inputs
        count = x.size // x.shape[1]
        mean, by_mean, by_var = (
            v.reshape(*wide(x)) for v in (moment(at.output, 0), moment(grad, 0), moment(grad, 1))
        )
        return {0: (x - mean) * (by_var * (2.0 / count)) + by_mean * (1.0 / count)}

    samples = [case(label, shape) for label, shape in SHAPES]


class BatchNormGiven(BatchOp):
    """Batch norm of ``[N, C, ...]`` by statistics ``[2, C]`` that are a value, as are weight and bias."""

    name = "batch_norm_given"
    kind = Kind.CHANNEL
    arity = (2, 4)
    attrs = (EPS, Attr("own", a.boolean, False, "the statistics are those of the input, and change with it"))
    cost = 3
    sample_range = (0.0, 2.0)  # variances are not negative

    def share(self, inputs: int) -> range:
        return range(1, inputs)

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, stats, *affine = ins
        self._check(x, stats)
        for role, got in zip(("weight", "bias"), affine, strict=False):
            checks.param_shape(self.name, role, got, (x[1],), f"(one per channel of the input {list(x)})")
        return x

    def parts(self, ins: Sequence[Value], attrs: Attrs) -> Value:
        """The same in nodes that engines have kernels for."""
        x, stats, *affine = ins
        scale = self._scale(stats, affine[0] if affine else None, attrs)
        shift = -moment(stats, 0) * scale
        return x.op("scale_shift", scale, shift + affine[1] if len(affine) > 1 else shift)

    def _scale(self, stats: Value, weight: Value | None, attrs: Attrs) -> Value:
        scale = (moment(stats, 1) + attrs["eps"]).op("rsqrt")
        return scale if weight is None else weight * scale

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        """All of it follows from two sums per channel, which one pass makes (arXiv 1502.03167, section 3)."""
        x, stats, *affine = at.inputs
        inverse = self._scale(stats, None, at.attrs)
        scale = self._scale(stats, affine[0] if affine else None, at.attrs)
        sums = grad.op("batch_sums", x, stats)
        by_shift, by_centred = moment(sums, 0), moment(sums, 1)
        made: dict[int | str, Value] = {}
        if at.attrs["own"]:
            made[0] = grad.op("batch_norm_grad", x, stats, sums, scale, eps=at.attrs["eps"])
        else:
            made[0] = grad * scale.reshape(*wide(x))
            made[1] = both(-by_shift * scale, by_centred * scale * inverse * inverse * -0.5)
        by_affine = [by_centred * inverse, by_shift][: len(affine)]
        return made | {2 + i: value for i, value in enumerate(by_affine)}

    samples = [
        *(case(label, shape, (2, shape[1]), (shape[1],), (shape[1],)) for label, shape in SHAPES),
        case("no scale, no shift, large eps", (2, 6, 5, 5), (2, 6), eps=1e-2),
        case("scale alone", (3, 6, 4, 5), (2, 6), (6,)),
        case("statistics of the input", (3, 5, 4, 6), (2, 5), (5,), (5,), own=True),
        case("statistics of features", (6, 7), (2, 7), own=True),
    ]


class ScaleShift(Op):
    """``x * scale + shift``, of ``[N, C, ...]`` by two numbers per channel, ``[C]``."""

    name = "scale_shift"
    kind = Kind.CHANNEL
    arity = (3, 3)
    cost = 2

    def share(self, inputs: int) -> range:
        return range(1, inputs)

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        x, *numbers = ins
        checks.rank_at_least(self.name, x, 2, "[N, C, ...]")
        for role, got in zip(("scale", "shift"), numbers, strict=True):
            checks.param_shape(self.name, role, got, (x[1],), f"(one per channel of the input {list(x)})")
        return x

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        x, scale, _ = at.inputs
        by_scale, by_shift = ((v.sum_to(wide(x))).reshape(x.shape[1]) for v in (grad * x, grad))
        return {0: grad * scale.reshape(*wide(x)), 1: by_scale, 2: by_shift}

    samples = [case(label, shape, (shape[1],), (shape[1],)) for label, shape in SHAPES]


#: Activations that the gradient of a batch norm goes back through in its own passes.
THROUGH = Attr("through", a.choice("identity", *SLOPES), "identity", "activation after the batch norm")


class Backwards(BatchOp, ABC):
    """Base of what gradients of batch norms take: of the gradient from behind, of inputs and numbers of
    channels. ``through`` an activation: the gradient is that of the activation's value, and the last two
    inputs are the scale and shift that the batch norm applied before it.
    """

    def share(self, inputs: int) -> range:
        return range(2, inputs)

    def shape(self, ins: Sequence[Shape], params: ParamShapes, attrs: Attrs) -> Shape:
        grad, x, stats, *rest = ins
        self._check(x, stats)
        checks.param_shape(self.name, "the gradient", grad, x, "(that of the input)")
        return self._made(x, rest, attrs)

    @abstractmethod
    def _made(self, x: Shape, rest: Sequence[Shape], attrs: Attrs) -> Shape:
        """The result's shape for the other inputs."""

    def _through(self, x: Shape, rest: Sequence[Shape], attrs: Attrs, roles: Sequence[str]) -> None:
        if len(rest) != len(roles):
            raise SpecError(
                f"{self.name} through {attrs['through']!r} takes {3 + len(roles)} inputs, got {3 + len(rest)}"
            )
        for role, got in zip(roles, rest, strict=True):
            want = (2, x[1]) if role == "sums" else (x[1],)
            checks.param_shape(self.name, role, got, want, f"(for {x[1]} channels)")


class BatchSums(Backwards):
    """The sums of ``g`` and of ``g * (x - mean)`` of every channel, ``[2, C]``; inputs g, x, ``[2, C]``."""

    name = "batch_sums"
    kind = Kind.REDUCTION
    sums_images = True
    arity = (3, 5)
    attrs = (THROUGH,)

    def _made(self, x: Shape, rest: Sequence[Shape], attrs: Attrs) -> Shape:
        self._through(x, rest, attrs, ("scale", "shift") * (attrs["through"] != "identity"))
        return (2, x[1])

    def flops(self, ins: Sequence[Shape], out: Shape, params: ParamShapes, attrs: Attrs) -> int:
        return 4 * math.prod(ins[1])

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        if at.attrs["through"] != "identity":
            raise UnsupportedError("op 'batch_sums' through an activation has no gradient")
        g, x, stats = at.inputs
        by_sum, by_product = (moment(grad, i).reshape(*wide(x)) for i in range(2))
        centred = x - moment(stats, 0).reshape(*wide(x))
        by_mean = -moment(grad, 1) * moment(at.output, 0)
        return {0: by_sum + by_product * centred, 1: g * by_product, 2: both(by_mean, by_mean * 0.0)}

    def cases(self) -> Sequence[Case]:
        plain = [case(label, shape, shape, (2, shape[1])) for label, shape in SHAPES]
        return plain + [
            case(f"{label}, {name}", shape, shape, (2, shape[1]), (shape[1],), (shape[1],), through=name)
            for name, (label, shape) in zip((*SLOPES, *SLOPES), SHAPES, strict=False)
        ]


class BatchNormGrad(Backwards):
    """``scale * (g - s0/n - (x - mean) * s1/(n * (var + eps)))``: a batch norm's gradient in training.

    Inputs: g, x of n elements a channel, statistics ``[2, C]``, `batch_sums` s ``[2, C]``, scale ``[C]``.
    """

    name = "batch_norm_grad"
    kind = Kind.REDUCTION
    arity = (5, 6)
    attrs = (EPS, THROUGH)
    cost = 6
    sample_range = (0.0, 2.0)  # variances are not negative

    def _made(self, x: Shape, rest: Sequence[Shape], attrs: Attrs) -> Shape:
        self._through(x, rest, attrs, ("sums", "scale", *["shift"] * (attrs["through"] != "identity")))
        return x

    def cases(self) -> Sequence[Case]:
        plain = [
            case(label, shape, shape, (2, shape[1]), (2, shape[1]), (shape[1],)) for label, shape in SHAPES
        ]
        return plain + [
            case(
                f"{label}, {name}", shape, shape, (2, shape[1]), (2, shape[1]), (shape[1],), (shape[1],),
                through=name, eps=1e-3,
            )
            for name, (label, shape) in zip((*SLOPES, *SLOPES), SHAPES, strict=False)
        ]  # fmt: skip
