"""Convolutions with a few outputs, whose lanes run along the sum: every width, what rides in the store."""

from typing import Any

import numpy as np
import pytest
from support.check import Array
from support.graphs import Graph
from support.kernel_checks import check
from support.noise import noise

from bslite.engines.cpu.detect import detect
from bslite.kernels.contracts.cpu.elementwise import Elementwise
from bslite.kernels.contracts.cpu.gemm import Conv
from bslite.machine import Machine
from bslite.passes import simplify
from bslite.plan import build_plan
from bslite.spec import ModelSpec


def model(
    x: Array, outputs: int, k: int, activation: str = "", residual: bool = False, **attrs: Any
) -> ModelSpec:
    """A convolution of the caller's image ``x``."""
    graph = Graph()
    value = graph.input("x", x.shape)
    params = {"weight": noise(outputs, x.shape[1], k, k, seed=1), "bias": noise(outputs, seed=2)}
    made = graph("conv2d", "conv", value, **params, **attrs)
    if residual:
        other = graph("conv2d", "other", value, weight=noise(outputs, x.shape[1], k, k, seed=3), **attrs)
        made = graph("add", "sum", made, graph("tanh", "tanh", other))
    return graph.build(graph(activation, "act", made) if activation else made)


def along(spec: ModelSpec, x: Array, machine: Machine) -> bool:
    """Whether lanes run along the sum of its convolution."""
    steps = build_plan(simplify(spec), [x.shape], machine).steps
    return any(s.record.across_bytes > 0 for s in steps if s.kernel == "conv" and "conv" in s.layers)


@pytest.mark.parametrize("outputs", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("k", [1, 3])
def test_every_width(outputs: int, k: int) -> None:
    image, machine = noise(1, 64, 8, 8), detect(2)
    if machine.lanes < 16 and not along(model(image, outputs, k), image, machine):
        pytest.skip("panels, with this processor's registers: a running sum, too few results to judge it by")
    for width in (*range(1, 16), 27, 29):
        x = noise(1, (64, 69, 80)[width % 3], k + 1, width + k - 1)
        y = check(model(x, outputs, k), x)
        assert y.shape == (1, outputs, 2, width)


@pytest.mark.parametrize("activation", ["", "relu", "sigmoid"])
@pytest.mark.parametrize("residual", [False, True])
def test_what_rides_in_the_store(activation: str, residual: bool) -> None:
    x = noise(2, 70, 13, 11)
    check(model(x, 3, 3, activation, residual, padding=1), x)
    check(model(x, 3, 3, activation, residual, padding=2, stride=2, dilation=2), x)
    check(model(x, 2, 1, activation, residual), x)


def test_a_sum_of_many_terms() -> None:
    """Nine taps of 1,500 inputs; each lane adds up a sixteenth, or an eighth, of them."""
    x = noise(1, 1500, 7, 5)
    check(model(x, 2, 3, padding=1), x)


def test_what_is_no_number_stays_with_its_pixels() -> None:
    x = noise(1, 37, 9, 9)
    x[0, 36, 4, 4] = np.nan
    y = check(model(x, 2, 3, padding=1), x)
    assert (np.isnan(y[0]).sum(axis=(1, 2)) == 9).all()


def test_for_which_sizes() -> None:
    """Where a panel's lanes were mostly empty, and a sum is long enough to be worth adding up lanes."""
    x, wide, narrow, thin = (
        noise(1, 64, 8, 8),
        Machine(lanes=16),
        Machine(lanes=8, registers=16),
        Machine(lanes=4),
    )
    for outputs, k, by_lanes in (
        (3, 3, (True, True, False)),
        (4, 3, (True, False, False)),
        (4, 1, (False, False, False)),
        (8, 3, (False, False, False)),
        (12, 3, (False, False, False)),
    ):
        spec = model(x, outputs, k)
        assert tuple(along(spec, x, m) for m in (wide, narrow, thin)) == by_lanes, (outputs, k)
    short = noise(1, 6, 8, 8)
    assert not along(model(short, 1, 1), short, wide)


@pytest.mark.parametrize("activation", ["", "relu", "tanh"])
@pytest.mark.parametrize(
    ("taps", "attrs"),
    [
        ((4, 4), {"stride": 2, "padding": 1}),
        ((3, 5), {"stride": (1, 3), "padding": (0, 2), "output_padding": (0, 1)}),
        ((3, 2), {"stride": 3, "dilation": (1, 2)}),
        ((2, 2), {"stride": 2, "padding": 1}),
        ((7,), {"stride": 4}),
    ],
)
def test_phases_of_transposed_ones(taps: tuple[int, ...], attrs: dict[str, Any], activation: str) -> None:
    """Lanes run along the sums of a phase; a function of few channels runs once all phases are there."""
    x, op = noise(2, 90, *(6 + axis for axis, _ in enumerate(taps))), f"conv_transpose{len(taps)}d"
    graph = Graph()
    value = graph.input("x", x.shape)
    value = graph(op, "conv", value, weight=noise(90, 3, *taps, seed=1), bias=noise(3, seed=2), **attrs)
    spec = graph.build(graph(activation, "act", value) if activation else value)
    check(spec, x)
    plan = build_plan(simplify(spec), [x.shape], Machine(lanes=16))
    phases = [s.record for s in plan.steps if isinstance(s.record, Conv)]
    assert phases
    assert all(phase.across_bytes or phase.taps == 0 for phase in phases)
    apart = [s for s in plan.steps if isinstance(s.record, Elementwise)]
    assert len(apart) == (activation == "tanh")
