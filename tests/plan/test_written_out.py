"""What models write out in small ops is found in any spelling, and a near miss is left alone."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.check import assert_three_way
from support.graphs import Graph

import bslite
from bslite import reference
from bslite.passes import simplify
from bslite.spec import ModelSpec

RNG = np.random.default_rng(0)
ROOT = math.sqrt(0.5)
PI = math.sqrt(2 / math.pi)


class Net(Graph):
    """A graph of one input "x"; layers and constants are written as functions."""

    def __init__(self, *shape: int | str, example: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.x = self.input("x", shape, example)

    def __call__(self, op: str, *inputs: str | float | np.ndarray, **given: Any) -> str:
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        return super().__call__(op, f"{op}{len(self.nodes)}", *names, **given)

    def constant(self, value: float | np.ndarray) -> str:
        return self("constant", value=np.asarray(value, np.float32))

    def mean(self, x: str, axes: tuple[int, ...] = (-1,), keepdim: bool = True) -> str:
        return self("mean", x, axes=axes, keepdim=keepdim)


Write = Callable[[Net], str]


def check(spec: ModelSpec, op: str, found: bool, left: int = 1) -> ModelSpec:
    """``spec`` is simplified to ``left`` nodes with the op, or has no such op; it stays the same function."""
    x = RNG.uniform(-3, 3, spec.inputs[0].example).astype(np.float32)
    simple = simplify(spec)
    ops = [n.op for n in simple.nodes if n.op != "constant"]
    assert (op in ops) == found, ops
    assert not found or len(ops) == left, ops
    assert simple.outputs == spec.outputs
    exact = reference.run(spec, [x], np.float64)
    peer = reference.run(spec, [x], np.float32)
    plain = reference.run(simple, [x], np.float32)
    got = bslite.run(spec, x)
    for a, b, p, e in zip(plain, got if isinstance(got, list) else [got], peer, exact, strict=True):
        assert_three_way(a, p, e)
        assert_three_way(b, p, e)
    return simple


def cube(n: Net) -> str:
    return n("mul", n("mul", n.x, n.x), n.x)


def normal(n: Net) -> str:
    """Twice the normal distribution function."""
    return n("add", n("erf", n("mul", n.x, ROOT)), 1.0)


def inner(n: Net, third: str) -> str:
    return n("mul", n("add", n.x, n("mul", third, 0.044715)), PI)


ACTIVATIONS: dict[str, tuple[str, Write]] = {
    "gelu, torch's": ("gelu", lambda n: n("mul", n("mul", n.x, normal(n)), 0.5)),
    "gelu, tf2onnx's": ("gelu", lambda n: n("mul", n("mul", 0.5, n.x), normal(n))),
    "gelu, half last": ("gelu", lambda n: n("mul", n.x, n("mul", normal(n), 0.5))),
    "gelu, divided": (
        "gelu",
        lambda n: n("mul", n.x, n("div", n("add", 1.0, n("erf", n("div", n.x, math.sqrt(2)))), 2.0)),
    ),
    "gelu, multiplied out": (
        "gelu",
        lambda n: n("mul", n("add", n("mul", n("erf", n("mul", ROOT, n.x)), 0.5), 0.5), n.x),
    ),
    "gelu, erfc": (
        "gelu",
        lambda n: n("mul", n("mul", n.x, 0.5), n("sub", 1.0, n("erf", n("mul", n("neg", n.x), ROOT)))),
    ),
    "gelu by tanh, powers": (
        "gelu",
        lambda n: n("mul", n("mul", n.x, 0.5), n("add", n("tanh", inner(n, n("pow", n.x, 3.0))), 1.0)),
    ),
    "gelu by tanh, products": (
        "gelu",
        lambda n: n("mul", n.x, n("mul", 0.5, n("add", 1.0, n("tanh", inner(n, cube(n)))))),
    ),
    "gelu by tanh, factored": (
        "gelu",
        lambda n: n(
            "mul",
            n("mul", 0.5, n.x),
            n(
                "add",
                1.0,
                n("tanh", n("mul", n("mul", n.x, PI), n("add", 1.0, n("mul", n("mul", 0.044715, n.x), n.x)))),
            ),
        ),
    ),
    "gelu by sigmoid": ("gelu", lambda n: n("mul", n.x, n("sigmoid", n("mul", inner(n, cube(n)), 2.0)))),
    "silu": ("silu", lambda n: n("mul", n("sigmoid", n.x), n.x)),
    "quick gelu": ("silu", lambda n: n("mul", n.x, n("sigmoid", n("mul", n.x, 1.702)))),
    "silu by exp": ("silu", lambda n: n("div", n.x, n("add", 1.0, n("exp", n("neg", n.x))))),
    "mish": ("mish", lambda n: n("mul", n.x, n("tanh", n("softplus", n.x)))),
    "mish by log": ("mish", lambda n: n("mul", n("tanh", n("log", n("add", n("exp", n.x), 1.0))), n.x)),
    "softplus": ("softplus", lambda n: n("log", n("add", n("exp", n.x), 1.0))),
    "hard sigmoid": ("hardsigmoid", lambda n: n("div", n("clamp", n("add", n.x, 3.0), low=0, high=6), 6.0)),
    "hard sigmoid, bounds apart": (
        "hardsigmoid",
        lambda n: n("minimum", n("maximum", n("add", n("mul", n.x, 0.2), 0.5), 0.0), 1.0),
    ),
    "hard swish, Paddle's": (
        "hardswish",
        lambda n: n("div", n("mul", n.x, n("clamp", n("add", n.x, 3.0), low=0, high=6)), 6.0),
    ),
    "hard swish, relu6": (
        "hardswish",
        lambda n: n("mul", n.x, n("mul", n("relu6", n("add", n.x, 3.0)), 1 / 6)),
    ),
    "hard swish by hard sigmoid": ("hardswish", lambda n: n("mul", n.x, n("hardsigmoid", n.x))),
}


@pytest.mark.parametrize(("op", "write"), ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_activation(op: str, write: Write) -> None:
    net = Net("N", 7, example=(5, 7))
    check(net.build(write(net)), op, True)


NOT_ACTIVATIONS: dict[str, tuple[str, Write]] = {
    "gelu of another width": (
        "gelu",
        lambda n: n("mul", n("mul", n.x, n("add", n("erf", n("mul", n.x, 0.7)), 1.0)), 0.5),
    ),
    "gelu without the half": ("gelu", lambda n: n("mul", n.x, normal(n))),
    "gelu by tanh, another cube": (
        "gelu",
        lambda n: n("mul", n("mul", n.x, 0.5), n("add", n("tanh", n("mul", cube(n), PI)), 1.0)),
    ),
    "sigmoid of another value": ("silu", lambda n: n("mul", n("tanh", n.x), n("sigmoid", n.x))),
    "sigmoid of a shifted value": ("silu", lambda n: n("mul", n.x, n("sigmoid", n("add", n.x, 1.0)))),
    "ramp to 5": ("hardswish", lambda n: n("mul", n.x, n("clamp", n("add", n.x, 3.0), low=0, high=5))),
    "softplus of two": ("softplus", lambda n: n("log", n("add", n("exp", n.x), 2.0))),
    "slope for each feature": ("silu", lambda n: n("mul", n.x, n("sigmoid", n("mul", n.x, np.arange(7.0))))),
}


@pytest.mark.parametrize(("op", "write"), NOT_ACTIVATIONS.values(), ids=NOT_ACTIVATIONS)
def test_another_function_is_left_alone(op: str, write: Write) -> None:
    net = Net("N", 7, example=(5, 7))
    check(net.build(write(net)), op, False)


def test_what_is_read_in_between_stays() -> None:
    """A sigmoid that is read twice stays, so its product gains nothing by an op of its own."""
    net = Net("N", 7, example=(5, 7))
    sigmoid = net("sigmoid", net.x)
    check(net.build(net("mul", net.x, sigmoid), sigmoid), "silu", False)
    net = Net("N", 7, example=(5, 7))
    sigmoid = net("sigmoid", net.x)
    check(net.build(net("sub", net("mul", net.x, sigmoid), sigmoid)), "silu", False)


def test_a_mean_that_is_read_elsewhere_stays() -> None:
    net = Net("N", 8, example=(5, 8))
    mean = net.mean(net.x)
    y = layer_norm(net, mean=mean)
    simple = check(net.build(y, mean), "layer_norm", True, left=2)
    assert sorted(n.op for n in simple.nodes) == ["layer_norm", "mean"]


def layer_norm(n: Net, mean: str = "", axes: tuple[int, ...] = (-1,)) -> str:
    centred = n("sub", n.x, mean or n.mean(n.x, axes))
    variance = n.mean(n("mul", centred, centred), axes)
    return n("div", centred, n("sqrt", n("add", variance, 1e-5)))


def tf2onnx(n: Net, gamma: np.ndarray, beta: np.ndarray, size: int) -> str:
    """Sums over a constant count; scale and shift folded into the factor."""
    mean = n("div", n("sum", n.x, axes=(-1,), keepdim=True), float(size))
    centred = n("sub", n.x, mean)
    variance = n("mul", n("sum", n("mul", centred, centred), axes=(-1,), keepdim=True), 1 / size)
    inverse = n("mul", n("reciprocal", n("sqrt", n("add", variance, 1e-3))), gamma)
    return n("add", n("mul", n.x, inverse), n("sub", beta, n("mul", mean, inverse)))


def flax(n: Net, gamma: np.ndarray, beta: np.ndarray) -> str:
    """The variance as the mean square minus the squared mean, not below zero by rounding."""
    mean = n.mean(n.x)
    variance = n("maximum", 0.0, n("sub", n.mean(n("mul", n.x, n.x)), n("mul", mean, mean)))
    factor = n("mul", n("rsqrt", n("add", variance, 1e-6)), gamma)
    return n("add", n("mul", n("sub", n.x, mean), factor), beta)


def squeezed(n: Net) -> str:
    """Reductions that drop their axis, put back by reshapes."""
    mean = n("reshape", n.mean(n.x, keepdim=False), shape=(0, 0, 1))
    centred = n("sub", n.x, mean)
    variance = n("add", n.mean(n("pow", centred, 2.0), keepdim=False), 1e-5)
    return n("div", centred, n("reshape", n("sqrt", variance), shape=(0, 0, 1)))


def rms(n: Net, eps: float = 1e-6) -> str:
    return n("mul", n.x, n("rsqrt", n("add", n.mean(n("pow", n.x, 2.0)), eps)))


def affine(n: Net, y: str, scale: Any, shift: Any) -> str:
    return n("add", n("mul", y, scale), shift)


SCALE, SHIFT = RNG.uniform(0.5, 2, 8), RNG.uniform(-1, 1, 8)
NORMS: dict[str, tuple[str, Write]] = {
    "layer norm": ("layer_norm", layer_norm),
    "with scale and shift": ("layer_norm", lambda n: affine(n, layer_norm(n), SCALE, SHIFT)),
    "scale first": ("layer_norm", lambda n: n("add", SHIFT, n("mul", SCALE, layer_norm(n)))),
    "scale of rank 3": ("layer_norm", lambda n: n("mul", layer_norm(n), SCALE.reshape(1, 1, 8))),
    "one number for all": ("layer_norm", lambda n: affine(n, layer_norm(n), 1.5, 0.25)),
    "tf2onnx's": ("layer_norm", lambda n: tf2onnx(n, SCALE, SHIFT, 8)),
    "flax's": ("layer_norm", lambda n: flax(n, SCALE, SHIFT)),
    "axes dropped and put back": ("layer_norm", squeezed),
    "rms norm": ("rms_norm", rms),
    "rms norm with scale": ("rms_norm", lambda n: n("mul", SCALE, rms(n))),
    "normalised": (
        "normalize",
        lambda n: n("div", n.x, n("maximum", n("l2_norm", n.x, axes=(-1,), keepdim=True), 1e-12)),
    ),
    "normalised, expanded": (
        "normalize",
        lambda n: n(
            "div",
            n.x,
            n(
                "expand",
                n("clamp", n("l2_norm", n.x, axes=(-1,), keepdim=True), low=1e-12),
                shape=(-1, -1, 8),
            ),
        ),
    ),
    "normalised, tensorflow's": (
        "normalize",
        lambda n: n(
            "mul",
            n.x,
            n("rsqrt", n("maximum", n("sum", n("mul", n.x, n.x), axes=(-1,), keepdim=True), 1e-12)),
        ),
    ),
}


@pytest.mark.parametrize(("op", "write"), NORMS.values(), ids=NORMS)
def test_norm(op: str, write: Write) -> None:
    net = Net("N", "T", 8, example=(2, 3, 8))
    check(net.build(write(net)), op, True)


NOT_NORMS: dict[str, tuple[str, Write]] = {
    "the axis is of any size": ("layer_norm", lambda n: layer_norm(n, axes=(1,))),
    "mean along another axis": ("layer_norm", lambda n: layer_norm(n, mean=n.mean(n.x, (1,)))),
    "sum over another count": ("layer_norm", lambda n: tf2onnx(n, SCALE, SHIFT, 9)),
    "no number below the root": ("rms_norm", lambda n: n("div", n.x, n("sqrt", n.mean(n("mul", n.x, n.x))))),
    "nothing keeps it from zero": (
        "normalize",
        lambda n: n("div", n.x, n("l2_norm", n.x, axes=(-1,), keepdim=True)),
    ),
    "an epsilon with no reciprocal": (
        "normalize",
        lambda n: n("div", n.x, n("clamp", n("l2_norm", n.x, axes=(-1,), keepdim=True), low=1e-45)),
    ),
    "sum of magnitudes": (
        "normalize",
        lambda n: n("div", n.x, n("maximum", n("l1_norm", n.x, axes=(-1,), keepdim=True), 1e-12)),
    ),
}


@pytest.mark.parametrize(("op", "write"), NOT_NORMS.values(), ids=NOT_NORMS)
def test_another_norm_is_left_alone(op: str, write: Write) -> None:
    net = Net("N", "T", 8, example=(2, 3, 8))
    check(net.build(write(net)), op, False)


def raised(n: Net, axis: int) -> str:
    return n("exp", n("sub", n.x, n("amax", n.x, axes=(axis,), keepdim=True)))


def jax(n: Net) -> str:
    """The largest element in a smaller shape, and not below -inf."""
    largest = n("maximum", -np.inf, n("amax", n.x, axes=(2,)))
    y = n("exp", n("sub", n.x, n("reshape", largest, shape=(0, 0, 1))))
    return n("div", y, n("reshape", n("sum", y, axes=(2,)), shape=(0, 0, 1)))


def total(n: Net, x: str, axis: int) -> str:
    return n("sum", x, axes=(axis,), keepdim=True)


def softmax(n: Net, axis: int, summed: int | None = None) -> str:
    y = raised(n, axis)
    return n("div", y, total(n, y, axis if summed is None else summed))


def log_softmax(n: Net, axis: int) -> str:
    shifted = n("sub", n.x, n("amax", n.x, axes=(axis,), keepdim=True))
    return n("sub", shifted, n("log", total(n, n("exp", shifted), axis)))


def unshifted(n: Net) -> str:
    y = n("exp", n.x)
    return n("mul", y, n("reciprocal", total(n, y, -1)))


SOFTMAXES: dict[str, tuple[str, int, Write]] = {  # nodes that are left; 0: it is no softmax
    "softmax": ("softmax", 1, lambda n: softmax(n, -1)),
    "softmax along an axis of any size": ("softmax", 1, lambda n: softmax(n, 1)),
    "softmax, jax's": ("softmax", 1, jax),
    "softmax without the largest": ("softmax", 1, unshifted),
    "log-softmax": ("log_softmax", 1, lambda n: log_softmax(n, 2)),
    "log-softmax by logsumexp": (
        "log_softmax",
        1,
        lambda n: n("sub", n.x, n("logsumexp", n.x, axes=(1,), keepdim=True)),
    ),
    "softmax of what the largest of another axis is taken from": ("softmax", 3, lambda n: softmax(n, 1, 2)),
    "divided by the mean": (
        "softmax",
        0,
        lambda n: n("div", raised(n, 2), n("mean", raised(n, 2), axes=(2,), keepdim=True)),
    ),
    "twice the exponent": (
        "softmax",
        0,
        lambda n: n("div", raised(n, 1), total(n, n("exp", n("mul", n.x, 2.0)), 1)),
    ),
}


@pytest.mark.parametrize(("op", "left", "write"), SOFTMAXES.values(), ids=SOFTMAXES)
def test_softmax(op: str, left: int, write: Write) -> None:
    net = Net("N", "T", 8, example=(2, 3, 8))
    check(net.build(write(net)), op, left > 0, left)


CHANNELS = RNG.uniform(0.5, 2, (6, 1, 1))


def grouped(n: Net, groups: int) -> str:
    """torch's export: each group is a channel of an instance norm."""
    y = n("reshape", n.x, shape=(0, groups, -1))
    ones, zeros = np.ones(groups, np.float32), np.zeros(groups, np.float32)
    y = n("group_norm", y, num_groups=groups, eps=1e-4, weight=ones, bias=zeros)
    return affine(n, n("reshape", y, shape=(0, 6, -1, 4)), CHANNELS, -CHANNELS)


IMAGES: dict[str, tuple[str, bool, Write]] = {
    "instance norm": (
        "group_norm",
        True,
        lambda n: affine(n, layer_norm(n, axes=(2, 3)), CHANNELS, CHANNELS),
    ),
    "group norm": ("group_norm", True, lambda n: grouped(n, 3)),
    "layer norm of channels": (
        "layer_norm",
        True,
        lambda n: affine(n, layer_norm(n, axes=(1,)), CHANNELS, CHANNELS),
    ),
    "norm of images and channels": ("group_norm", False, lambda n: layer_norm(n, axes=(1, 2))),
}


@pytest.mark.parametrize(("op", "found", "write"), IMAGES.values(), ids=IMAGES)
def test_norm_of_images(op: str, found: bool, write: Write) -> None:
    net = Net("N", 6, "H", 4, example=(2, 6, 5, 4))
    check(net.build(write(net)), op, found, left=3 if op == "layer_norm" else 1)


def test_layer_norm_of_a_gelu_of_a_sum() -> None:
    """Each function is found in terms of the value it is a function of."""
    net = Net("N", "T", 8, example=(2, 3, 8))
    start = net("add", net.x, net("tanh", net.x))
    net.x = net("mul", net("mul", start, 0.5), net("add", net("erf", net("mul", start, ROOT)), 1.0))
    simple = check(net.build(affine(net, layer_norm(net), SCALE, SHIFT)), "layer_norm", True, left=4)
    assert [n.op for n in simple.nodes] == ["tanh", "add", "gelu", "layer_norm"]
