"""Which convolutions are computed plane by plane."""

import numpy as np
import pytest
from support.check import Array
from support.graphs import Graph, network
from support.kernel_checks import check
from support.noise import noise

from bslite.machine import Machine
from bslite.passes import simplify
from bslite.plan import build_plan
from bslite.spec import ModelSpec


def planes(spec: ModelSpec, *inputs: Array, strides: tuple[tuple[int, ...], ...] | None = None) -> list[str]:
    """The convolutions that are computed plane by plane on a machine with registers of 16 lanes."""
    spec, shapes = simplify(spec), [x.shape for x in inputs]
    steps = build_plan(spec, shapes, Machine(lanes=16, threads=2), input_strides=strides).steps
    inner = [s for step in steps for plan in getattr(step, "plans", ()) for s in plan.steps]
    found = {layer for s in [*steps, *inner] if s.kernel == "conv_planes" for layer in s.layers}
    return [node.name for node in spec.nodes if node.op == "conv2d" and node.name in found]


def blurred(g: Graph, name: str, x: str, channels: int, taps: int) -> str:
    """A separable filter of each channel."""
    weight = noise(channels, 1, 1, taps, seed=1)
    x = g("conv2d", f"{name}_x", x, weight=weight, groups=channels, padding=(0, taps // 2))
    weight = weight.reshape(channels, 1, taps, 1)
    return g("conv2d", f"{name}_y", x, weight=weight, groups=channels, padding=(taps // 2, 0))


@pytest.mark.parametrize("channels", [1, 3])
def test_image_filters(channels: int) -> None:
    g, shape = Graph(), (1, channels, 60, 90)
    spec = g.build(blurred(g, "blur", g.input("x", shape), channels, 7))
    x = noise(*shape)
    assert planes(spec, x) == ["blur_x", "blur_y"]
    check(spec, x)


@pytest.mark.parametrize(("channels", "found"), [(3, 4), (8, 0)])
def test_pyramids(channels: int, found: int) -> None:
    """Of few channels, pools and what resizes take planes, too."""
    g, shape = Graph(), (1, channels, 64, 96)
    value = blurred(g, "first", g.input("x", shape), channels, 5)
    value = g("avg_pool2d", "smaller", value, kernel=2, stride=2)
    value = blurred(g, "second", value, channels, 5)
    spec = g.build(g("upsample", "larger", value, mode="bilinear", size=(64, 96)))
    x = noise(*shape)
    assert len(planes(spec, x)) == found
    check(spec, x)


def test_filters_joined_by_elementwise_ops_and_sums() -> None:
    """A structural similarity: five filtered images, and the mean of what is made of them."""
    g, shape = Graph(), (2, 1, 64, 70)
    x, y = g.input("x", shape), g.input("y", shape)
    each = {"xx": (x, x), "yy": (y, y), "xy": (x, y)}
    mean = {name: blurred(g, name, value, 1, 11) for name, value in (("x", x), ("y", y))}
    mean |= {name: blurred(g, name, g("mul", f"{name}_0", *of), 1, 11) for name, of in each.items()}
    apart = g("sub", "apart", mean["xy"], g("mul", "both", mean["x"], mean["y"]))
    whole = g("add", "whole", mean["xx"], g("exp", "positive", mean["yy"]))
    spec = g.build(g("mean", "mean", g("div", "ratio", apart, whole), axes=(1, 2, 3)))
    inputs = noise(*shape), noise(*shape, seed=1)
    assert len(planes(spec, *inputs)) == 10
    check(spec, *inputs)


def test_strips_of_images_in_stacks() -> None:
    """Filters of an image that is larger than the cache: their lines are cut into bands."""
    g, shape = Graph(), (1, 2, 700, 900)
    value = g.input("x", shape)
    for i in range(3):
        value = g("relu", f"relu{i}", blurred(g, f"blur{i}", value, 2, 5))
    spec = g.build(value)
    x = noise(*shape)
    assert len(planes(spec, x)) >= 6
    check(spec, x)


@pytest.mark.parametrize(
    ("shape", "weight", "attrs", "found"),
    [
        ((1, 64, 100, 100), (21, 64, 1, 1), {}, True),
        ((1, 160, 90, 90), (160, 2, 1, 1), {"groups": 80}, True),
        ((1, 256, 85, 85), (256, 1, 3, 3), {"groups": 256, "padding": 1}, True),
        ((1, 256, 14, 14), (1024, 256, 1, 1), {}, False),
        ((1, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}, False),
        ((1, 512, 7, 7), (512, 1, 3, 3), {"groups": 512, "padding": 1}, False),
    ],
)
def test_layers_alone(
    shape: tuple[int, ...], weight: tuple[int, ...], attrs: dict[str, int], found: bool
) -> None:
    """The fewer terms a sum has, and the larger its planes are, the less a turn there and back is worth."""
    g = Graph()
    spec = g.build(g("conv2d", "conv", g.input("x", shape), weight=noise(*weight, seed=1), **attrs))
    x = noise(*shape)
    assert planes(spec, x) == ["conv"] * found
    last = shape[1] * shape[2] * shape[3], 1, shape[1] * shape[3], shape[1]
    assert planes(spec, x, strides=(last,)) == []  # images whose channels are last already


@pytest.mark.parametrize("after", ["max_pool2d", "permute", "conv_transpose2d", "flatten"])
def test_not_where_images_or_tokens_follow(after: str) -> None:
    g, shape = Graph(), (1, 32, 80, 80)
    value = g("conv2d", "conv", g.input("x", shape), weight=noise(8, 32, 1, 1, seed=1))
    if after == "max_pool2d":
        value = g(after, "after", value, kernel=2, stride=2)
    elif after == "permute":
        value = g(after, "after", value, order=(0, 2, 3, 1))
    elif after == "flatten":
        value = g("permute", "turned", g(after, "after", value, start_axis=2), order=(0, 2, 1))
    else:
        value = g(after, "after", value, weight=noise(8, 8, 2, 2, seed=2), stride=2)
    spec = g.build(value)
    x = noise(*shape)
    assert planes(spec, x) == []
    check(spec, x)


def test_sizes_decide() -> None:
    """One model, small images and large ones."""
    g = Graph()
    value = g.input("x", ("N", 48, "H", "W"), (1, 48, 8, 8))
    spec = simplify(g.build(g("conv2d", "conv", value, weight=noise(48, 1, 3, 3, seed=1), groups=48)))
    assert planes(spec, np.empty((1, 48, 8, 8))) == []
    assert planes(spec, np.empty((1, 48, 200, 200))) == ["conv"]


def test_networks_stay_images() -> None:
    for name in ("resnet18", "mobilenet_v2", "squeezenet1_1"):
        assert planes(network(name), np.empty((1, 3, 64, 64))) == []
