"""Averages of images whose lines a depthwise convolution has summed: the same bits, one step fewer."""

from typing import Any

import numpy as np
import pytest
from support.check import assert_three_way
from support.graphs import Graph
from support.noise import noise

import bslite
from bslite import reference
from bslite.engines.cpu.engine import prepare
from bslite.kernels.contracts.cpu.gemm import Depthwise
from bslite.kernels.contracts.cpu.windows import AvgPool
from bslite.plan import Plan
from bslite.spec import ModelSpec


def squeeze(
    channels: int, h: int, w: int, stride: int = 1, activation: str = "silu", n: Any = "N"
) -> ModelSpec:
    """Depthwise, average, gate: ``x * sigmoid(mean(x))``."""
    g = Graph("squeeze")
    x = g.input("x", (n, channels, h, w))
    y = g(
        "conv2d", "dw", x, weight=noise(channels, 1, 3, 3), bias=noise(channels), padding=1, stride=stride,
        groups=channels,
    )  # fmt: skip
    if activation:
        y = g(activation, "act", y)
    mean = g("adaptive_avg_pool2d", "mean", y, output_size=1)
    return g.build(g("mul", "gated", y, g("sigmoid", "gate", mean)))


def steps(plan: Plan[Any], kind: type) -> list[Any]:
    inner = [s for step in plan.steps for p in step.plans for s in steps(p, kind)]
    return [s for s in plan.steps if isinstance(s.record, kind)] + inner


CASES = [(40, 16, 16, 1), (64, 12, 30, 1), (7, 33, 17, 2), (96, 112, 112, 2), (3, 20, 20, 1), (100, 64, 2, 1)]


@pytest.mark.parametrize("activation", ["silu", "relu", ""])
@pytest.mark.parametrize("case", CASES)
def test_same_bits_with_fewer_steps(case: tuple[int, int, int, int], activation: str) -> None:
    spec = squeeze(*case, activation=activation)
    x = noise(3, *case[:3])
    plan = prepare(spec, [x[:1]], 2, False).plan
    assert [s.record.has_sums for s in steps(plan, Depthwise)] == [1]
    assert len(steps(plan, AvgPool)) == 1
    made = bslite.run(spec, x)
    exact, peer = (reference.run(spec, [x], kind)[0] for kind in (np.float64, np.float32))
    assert_three_way(made, peer, exact)
    np.testing.assert_array_equal(bslite.run(spec, x, layerwise=True), made)
    for image, mine in zip(x, made, strict=True):
        for threads in (1, 2, 5):
            np.testing.assert_array_equal(bslite.run(spec, image[None], threads=threads)[0], mine)


def test_small_images_are_averaged_in_one_step() -> None:
    spec = squeeze(64, 7, 7)
    plan = prepare(spec, [noise(1, 64, 7, 7)], 2, False).plan
    assert [s.record.has_sums for s in steps(plan, Depthwise)] == [0]


@pytest.mark.parametrize("planted", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_reaches_the_average(planted: float) -> None:
    x = noise(1, 40, 16, 16)
    x[0, 3, 5, 5] = planted
    g = Graph("mean")
    y = g("conv2d", "dw", g.input("x", x.shape), weight=np.abs(noise(40, 1, 3, 3)), padding=1, groups=40)
    spec = g.build(g("adaptive_avg_pool2d", "mean", y, output_size=1))
    made = bslite.run(spec, x)
    np.testing.assert_array_equal(made.ravel()[3], np.float32(planted))
    assert np.isfinite(np.delete(made.ravel(), 3)).all()
    np.testing.assert_array_equal(bslite.run(spec, x, layerwise=True), made)


def test_explanation_lays_the_sums_to_the_convolution() -> None:
    spec = squeeze(64, 32, 32, n=1)
    found = {r.name: r for r in bslite.explain(spec, runs=1).layers}
    assert "sums each line for the average of the image" in found["dw"].holds
    assert found["mean"].flops == 3 * 64, "the gate alone"
    assert found["dw"].flops >= 2 * 9 * 64 * 32 * 32 + 64 * 32 * 32
    assert found["mean"].bytes == 4 * 64


def test_two_averages_of_one_value_are_summed_once() -> None:
    g = Graph("twice")
    y = g("conv2d", "dw", g.input("x", (1, 40, 16, 16)), weight=noise(40, 1, 3, 3), padding=1, groups=40)
    means = [g("adaptive_avg_pool2d", f"mean{i}", y, output_size=1) for i in range(2)]
    spec = g.build(g("add", "sum", means[0], g("sigmoid", "gate", means[1])))
    found = {r.name: r for r in bslite.explain(spec, runs=1).layers}
    assert found["dw"].flops == 2 * 9 * 40 * 256 + 40 * 256
    x = noise(1, 40, 16, 16)
    np.testing.assert_array_equal(bslite.run(spec, x), bslite.run(spec, x, layerwise=True))
