"""Signals ``[N, C, L]``: bands of their pixels, lines in pieces, resizing as they lie."""

import math

import numpy as np
import pytest
from support.check import Array, assert_three_way
from support.graphs import Graph
from support.noise import noise
from support.plans import plan_of, run_tuned

import bslite
from bslite import ModelSpec, reference
from bslite.machine import Machine
from bslite.plan import Plan
from bslite.plan.cpu.ops.depthwise import SHORTEST, piece
from bslite.plan.cpu.tuning import Banding, Tuning

EAGER = Tuning(banding=Banding(rounds=(3,), sync=1e9, worth=0))


def same_bits(spec: ModelSpec, x: Array, tuning: Tuning) -> None:
    """As layer by layer, which is checked against the oracle."""
    want = bslite.run(spec, x, layerwise=True)
    assert_three_way(want, reference.run(spec, [x], np.float32)[0], reference.run(spec, [x], np.float64)[0])
    for threads in (1, 2):
        assert run_tuned(spec, [x], threads, tuning)[0].tobytes() == want.tobytes()


def bands_of(plan: Plan) -> list[int]:
    """The bands of each stack."""
    return [len(step.bands) for step in plan.steps if step.bands]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("padding", [(0, 0), (4, 1)])
def test_a_run_of_convolutions_goes_by_bands(stride: int, dilation: int, padding: tuple[int, int]) -> None:
    """Dense, depthwise and of one pixel, a sum, a pool: the first and last band have zeros beside them."""
    g, c = Graph(), 24
    x = g.input("x", ("N", 12, 401), (1, 12, 401))
    first = g("relu", "act", g("conv1d", "first", x, weight=noise(c, 12, 5), bias=noise(c), padding=padding))
    wide = {"dilation": dilation, "padding": (dilation, dilation)}
    deep = g("conv1d", "deep", first, weight=noise(c, 1, 3), groups=c, **wide)
    point = g("conv1d", "point", deep, weight=noise(c, c, 1))
    pooled = g("max_pool1d", "pool", g("add", "sum", point, first), kernel=3, stride=stride, padding=(1, 1))
    last = g("conv1d", "last", pooled, weight=noise(8, c, 4), stride=stride, padding=padding)
    spec = g.build(g("leaky_relu", "end", last))
    for batch in (1, 3):
        plan = plan_of(spec, (batch, 12, 401), tuning=EAGER)
        assert max(bands_of(plan)) > 1
        same_bits(spec, noise(batch, 12, 401), EAGER)


def test_parts_of_a_filter_outside_a_signal_are_left_out_of_each_band() -> None:
    """A filter that reaches far beyond both ends is summed tap by tap, also in bands that it stays within."""
    g = Graph()
    x = g("relu", "first", g.input("x", ("N", 64, 120), (1, 64, 120)))
    for i in range(2):
        x = g("conv1d", f"wide{i}", x, weight=noise(64, 64, 5), dilation=20, padding=(40, 40))
    spec = g.build(x)
    (stack,) = [step for step in plan_of(spec, (1, 64, 120), tuning=EAGER).steps if step.bands]
    inside = [
        step.record.columns.tap_entries for p in stack.plans for step in p.steps if step.kernel == "conv"
    ]
    assert inside
    assert all(inside)
    same_bits(spec, noise(1, 64, 120), EAGER)


def test_tokens_are_no_signals() -> None:
    """The last axis of rows is theirs: no band cuts it."""
    g = Graph()
    x = g("tanh", "a", g.input("x", ("N", 300, 256), (1, 300, 256)))
    spec = g.build(g("softmax", "soft", g("linear", "b", x, weight=noise(256, 256)), axis=-1))
    assert max(bands_of(plan_of(spec, (1, 300, 256), tuning=EAGER)), default=1) == 1


def test_a_signal_of_usual_size_goes_by_bands() -> None:
    """With the prices as they are: a block of a network that separates voices."""
    g = Graph()
    x = value = g.input("x", ("N", 64, 16384), (1, 64, 16384))
    for name, c, k, groups, taps in (("a", 64, 128, 1, 1), ("b", 1, 128, 128, 3), ("c", 128, 64, 1, 1)):
        weight, padding = noise(k, c, taps), (taps // 2, taps // 2)
        value = g("conv1d", name, value, weight=weight, groups=groups, padding=padding)
    spec = g.build(g("add", "sum", value, x))
    (step,) = [step for step in plan_of(spec, (1, 64, 16384)).steps if step.bands]
    assert step.layers[:3] == ("a", "b", "c")


@pytest.mark.parametrize("pixels", [28, 57, 400, 3001, 4001])
@pytest.mark.parametrize(("group", "stride", "dilation"), [((1, 1), 1, 1), ((1, 1), 2, 1), ((2, 2), 1, 2)])
def test_a_line_of_few_channels_is_cut_into_pieces(
    pixels: int, group: tuple[int, int], stride: int, dilation: int
) -> None:
    """Threads share them; what remains is a step of its own."""
    g, c = Graph(), 40
    reach = 2 * dilation
    x = g("relu", "first", g.input("x", ("N", c, pixels), (2, c, pixels)))
    geometry = {"stride": stride, "dilation": dilation, "padding": (reach, 0), "groups": c // group[0]}
    conv = g("conv1d", "conv", x, weight=noise(c, group[0], 3), bias=noise(c, seed=1), **geometry)
    spec = g.build(g("conv1d", "last", g("relu", "act", conv), weight=noise(c, c, 1)))
    steps = [s for s in plan_of(spec, (2, c, pixels), layerwise=True).steps if s.kernel == "depthwise"]
    made = -(-pixels // stride)
    assert sum(s.record.lines * s.record.cut.pixels for s in steps) == made
    assert made < 4 * SHORTEST or sum(s.record.lines for s in steps) > 1
    same_bits(spec, noise(2, c, pixels), Tuning())


@pytest.mark.parametrize("taps", [1, 2, 3])
@pytest.mark.parametrize(("stride", "dilation"), [(2, 1), (2, 2), (3, 1), (4, 2)])
def test_a_transposed_line_with_pixels_that_no_tap_meets(taps: int, stride: int, dilation: int) -> None:
    """These are the bias alone, in whatever pieces."""
    g, c = Graph(), 24
    x = g("relu", "first", g.input("x", ("N", c, 300), (1, c, 300)))
    weight, bias = noise(c, 1, taps), noise(c, seed=1)
    how = {"stride": stride, "dilation": dilation, "groups": c}
    spec = g.build(g("conv_transpose1d", "up", x, weight=weight, bias=bias, **how))
    same_bits(spec, noise(1, c, 300), Tuning())


def test_a_line_of_padding_is_the_bias() -> None:
    """Windows of an image of one row that lie in the rows of zeros around it."""
    g = Graph()
    x = g("relu", "first", g.input("x", ("N", 8, 1, 100), (2, 8, 1, 100)))
    how = {"stride": (3, 1), "padding": (1, 1, 1, 1), "groups": 8}
    spec = g.build(g("conv2d", "conv", x, weight=noise(8, 1, 1, 3), bias=noise(8, seed=1), **how))
    same_bits(spec, noise(2, 8, 1, 100), Tuning())


@pytest.mark.parametrize(("pixels", "padding"), [(2, 100), (5, 500)])
def test_a_line_that_is_mostly_padding(pixels: int, padding: int) -> None:
    """The input has fewer pixels than the output has pieces."""
    g = Graph()
    x = g("relu", "first", g.input("x", ("N", 40, pixels), (2, 40, pixels)))
    spec = g.build(g("conv1d", "conv", x, weight=noise(40, 1, 5), padding=(padding, padding), groups=40))
    same_bits(spec, noise(2, 40, pixels), Tuning())


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 40, 3000, 3), 2), ((3, 3000, 8, 17), 1), ((3, 40, 3000), 2), ((3, 8, 64, 64), 2)]
)
def test_a_mean_has_the_same_bits_alone_and_in_a_batch(shape: tuple[int, ...], axis: int) -> None:
    """Whether it is taken in parts does not depend on the batch."""
    g, axes = Graph(), len(shape) - 2
    x = g.input("x", ("N", *shape[1:]), shape)
    made = g(f"conv{axes}d", "conv", x, weight=noise(shape[1], 1, *(1,) * axes), groups=shape[1])
    spec = g.build(g("mean", "mean", made, axes=(axis,), keepdim=True))
    data = noise(*shape)
    whole = bslite.run(spec, data)
    for i in range(shape[0]):
        np.testing.assert_array_equal(bslite.run(spec, data[i : i + 1]), whole[i : i + 1])


def test_pieces_divide_a_line_where_they_can() -> None:
    machine = Machine(threads=2, l2=2 << 20)
    assert 16384 % piece(machine, 128, 16384) == 0
    for channels, pixels in ((16, 5), (512, 3200), (8, 10007), (2048, 997)):
        length = piece(machine, channels, pixels)
        assert min(pixels, SHORTEST // 2) <= length <= pixels
    assert piece(machine, 64, 400) <= math.ceil(400 / 8)  # each of two threads has some


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("size", [13, 61, 170])
def test_signals_and_volumes_are_resized_where_they_lie(mode: str, size: int) -> None:
    """Into a concatenation with zeros beside it, which a convolution reads; no axes are turned."""
    for sizes in ((61,), (5, 6, 61)):
        g, axes, c = Graph(), len(sizes), 20
        one, three = (1,) * axes, (3,) * axes
        x = g("relu", "first", g.input("x", ("N", c, *sizes), (2, c, *sizes)))
        x = g(f"conv{axes}d", "deep", x, weight=noise(c, c, *one))
        for name, place in (("left", 0), ("right", 1)):
            how = {"mode": mode, "axes": (-1,), "sizes": (size,), "coordinates": "half_pixel"}
            part = g(f"conv{axes}d", f"{name}_in", x, weight=noise(c, c, *one, seed=place))
            g("resize", name, part, **how)
        joined = g("concat", "joined", "left", "right", axis=1)
        padding = (1,) * 2 * axes
        spec = g.build(g(f"conv{axes}d", "last", joined, weight=noise(c, 2 * c, *three), padding=padding))
        kernels = {s.kernel for s in plan_of(spec, 1).steps if {"left", "right"} & set(s.layers)}
        assert kernels <= {"resample", "copy", "halo"}
        same_bits(spec, noise(2, c, *sizes), Tuning())


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_signal_alone_is_resized_as_planes_of_one_row(mode: str) -> None:
    g = Graph()
    x = g.input("x", ("N", 5, "L"), (2, 5, 61))
    spec = g.build(g("resize", "big", x, mode=mode, axes=(2,), scales=(2.5,), coordinates="half_pixel"))
    assert [s.kernel for s in plan_of(spec, (2, 5, 61)).steps] == ["resize_planes"]
    x61, infinite = noise(2, 5, 61), noise(2, 5, 61, seed=1)
    infinite[1, 2, 30], infinite[0, 1, 3] = np.inf, np.nan
    same_bits(spec, x61, Tuning())
    np.testing.assert_array_equal(
        np.isnan(bslite.run(spec, infinite)), np.isnan(reference.run(spec, [infinite])[0])
    )
