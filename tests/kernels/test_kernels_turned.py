"""Results of convolutions that are turned in the store: from pixels of channels to the caller's planes."""

from typing import Any

import numpy as np
import pytest
from support.check import Array
from support.graphs import Graph, one_op
from support.kernel_checks import check
from support.noise import noise
from support.plans import run_tuned

import bslite
from bslite.kernels.contracts.cpu.gemm import Conv
from bslite.machine import Machine
from bslite.passes import simplify
from bslite.plan import build_plan
from bslite.plan.cpu.tuning import Tuning
from bslite.spec import ModelSpec

pytestmark = pytest.mark.usefixtures("images")


def turned(spec: ModelSpec, *inputs: Array) -> list[bool]:
    """Of each convolution's step, whether it turns its results."""
    steps = build_plan(simplify(spec), [x.shape for x in inputs], Machine(lanes=16, threads=2)).steps
    return [bool(s.record.apart.has_turned) for s in steps if isinstance(s.record, Conv)]


@pytest.mark.parametrize("activation", ["", "relu", "silu"])
@pytest.mark.parametrize("outputs", [9, 16, 50])
@pytest.mark.parametrize("width", [16, 17, 31, 40])
def test_sizes(outputs: int, width: int, activation: str) -> None:
    x, graph = noise(3, 12, 7, width), Graph()
    made = graph(
        "conv2d", "conv", graph.input("x", x.shape), weight=noise(outputs, 12, 3, 3, seed=1),
        bias=noise(outputs, seed=2), padding=1,
    )  # fmt: skip
    spec = graph.build(graph(activation, "act", made) if activation else made)
    check(spec, x)
    assert turned(spec, x) == [True]


@pytest.mark.parametrize(
    ("op", "x", "weight", "attrs"),
    [
        ("conv1d", (2, 20, 70), (40, 10, 5), {"padding": 2, "groups": 2}),
        ("conv2d", (2, 24, 20, 33), (48, 12, 3, 1), {"stride": (2, 1), "groups": 2}),
        ("conv2d", (1, 10, 9, 80), (33, 10, 1, 1), {"stride": (1, 4)}),
        ("conv2d", (1, 64, 16, 16), (32, 64, 1, 1), {}),
        ("conv3d", (2, 6, 5, 8, 24), (20, 6, 3, 3, 3), {"padding": 1}),
        ("conv3d", (1, 3, 4, 6, 18), (17, 3, 1, 3, 3), {"stride": (2, 1, 1)}),
    ],
)
def test_kinds(op: str, x: tuple[int, ...], weight: tuple[int, ...], attrs: dict[str, Any]) -> None:
    data = noise(*x)
    spec = one_op(op, data, weight=noise(*weight, seed=1), bias=noise(weight[0], seed=2), **attrs)
    check(spec, data)
    assert turned(spec, data) == [True]


def test_a_sum_in_the_store() -> None:
    x, graph = noise(2, 30, 9, 20), Graph()
    value = graph.input("x", x.shape)
    other = graph("tanh", "tanh", graph("conv2d", "other", value, weight=noise(24, 30, 1, 1, seed=1)))
    made = graph("conv2d", "conv", value, weight=noise(24, 30, 3, 3, seed=2), padding=1)
    spec = graph.build(graph("relu", "act", graph("add", "sum", made, other)))
    check(spec, x)


def test_what_others_read_stays() -> None:
    """A value that a layer reads, one that is returned twice, one of long sums, and one of short lines."""
    x, graph = noise(2, 16, 20, 20), Graph()
    made = graph("conv2d", "conv", graph.input("x", x.shape), weight=noise(32, 16, 3, 3, seed=1))
    pooled = graph("max_pool2d", "pool", made, kernel=2, stride=2)
    again = graph("conv2d", "next", made, weight=noise(20, 32, 3, 3, seed=2))
    spec = graph.build(made, pooled, again)
    got, want = bslite.run(spec, x, threads=2), bslite.run(spec, x, threads=1, layerwise=True)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)
    assert turned(spec, x) == [False, True]

    graph = Graph()
    made = graph("conv2d", "conv", graph.input("x", x.shape), weight=noise(32, 16, 3, 3, seed=1))
    spec = graph.build(made, made)
    first, second = bslite.run(spec, x)
    np.testing.assert_array_equal(first, second, strict=True)
    assert turned(spec, x) == [False]

    for shape, weight in (((1, 160, 20, 20), (24, 160, 3, 3)), ((1, 16, 20, 12), (24, 16, 3, 3))):
        x = noise(*shape)
        spec = one_op("conv2d", x, weight=noise(*weight, seed=1), padding=1)
        check(spec, x)
        assert turned(spec, x) == [False]


def test_a_value_that_is_repeated_is_turned_by_a_step() -> None:
    """It has no place in memory for each of its pixels, in which a store could find theirs."""
    g = Graph()
    x = g.input("x", ("N", 48, 1, 40), (1, 48, 1, 40))
    made = g("conv2d", "layer", x, weight=noise(32, 48, 1, 1))
    check(g.build(g("expand", "all", made, shape=(-1, 32, 9, 40))), noise(1, 48, 1, 40))


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize(("start", "stop"), [(0, -3), (2, 1 << 30), (0, 9)])
@pytest.mark.parametrize("kernel", [1, 3])
def test_what_a_slice_leaves_out_is_not_written(axis: int, start: int, stop: int, kernel: int) -> None:
    """The output is a slice of what the convolution makes, which is more than the caller's array holds."""
    for sizes in ((1, 1), (2, 1), (1, 3)):
        g, c = Graph(), 20
        x = g.input("x", ("N", c, 40 * sizes[0], 36), (sizes[1], c, 40 * sizes[0], 36))
        made = g("conv2d", "conv", x, weight=noise(33, c, kernel, kernel))
        spec = g.build(g("slice", "part", made, axis=axis, start=start, stop=stop, step=1))
        data = noise(sizes[1], c, 40 * sizes[0], 36)
        for threads in (1, 2):
            (got,) = run_tuned(spec, [data], threads, Tuning())
            np.testing.assert_array_equal(got, bslite.run(spec, data, layerwise=True))


def test_pixels_of_a_signal_that_are_cut_off_are_not_written() -> None:
    """Its line is cut into shorter ones, each of which would fit."""
    g = Graph()
    x = g.input("x", ("N", 17, 508), (1, 17, 508))
    spec = g.build(
        g("slice", "part", g("conv1d", "conv", x, weight=noise(16, 17, 1)), axis=2, start=0, stop=500, step=1)
    )
    data = noise(1, 17, 508)
    (got,) = run_tuned(spec, [data], 1, Tuning())
    np.testing.assert_array_equal(got, bslite.run(spec, data, layerwise=True))


@pytest.mark.parametrize("rows", [16, 100])
def test_a_single_output_of_many_rows(rows: int) -> None:
    """The result is an image of one pixel."""
    g = Graph()
    made = g("linear", "layer", g.input("x", (rows, 8)), weight=noise(1, 8))
    check(g.build(g("reshape", "column", made, shape=(1, rows, 1))), noise(rows, 8))
