"""The depthwise convolution: every microkernel, every width of a line, the same bits whichever is taken."""

from typing import Any

import numpy as np
import pytest
from support.check import Array
from support.graphs import Graph
from support.kernel_checks import MANY, check, ran
from support.noise import noise
from support.plans import run_tuned

from bslite.machine import Machine
from bslite.passes import simplify
from bslite.plan import build_plan
from bslite.plan.cpu.ops.depthwise import STRIDES, channel_run
from bslite.plan.cpu.tuning import Tuning
from bslite.spec import ModelSpec

pytestmark = pytest.mark.usefixtures("images")

WIDTHS = range(1, 31)
#: Filter columns, horizontal stride, dilation: with microkernels of their own, and without.
OWN = [(cols, stride, 1) for cols in (2, 3, 5, 7, 9, 20) for stride in STRIDES]
GENERAL = [(1, 1, 1), (4, 3, 1), (3, 3, 1), (3, 1, 2), (5, 2, 3), (65, 1, 1)]


def model(
    x: Array, rows: int, cols: int, activation: str = "", group: tuple[int, int] = (1, 1), **attrs: Any
) -> ModelSpec:
    """A convolution of an image like ``x``, read from a buffer of the engine's own: depthwise, or in groups
    of so many inputs and outputs.
    """
    inputs, outputs = group
    groups = x.shape[1] // inputs
    k = groups * outputs
    graph = Graph()
    params = {"weight": noise(k, inputs, rows, cols, seed=1), "bias": noise(k, seed=2)}
    value = graph("relu", "first", graph.input("x", x.shape))
    value = graph("conv2d", "conv", value, **params, groups=groups, **attrs)
    return graph.build(graph(activation, "act", value) if activation else value)


def image(c: int, rows: int, cols: int, stride: int, dilation: int, width: int) -> Array:
    """An image that makes lines of ``width`` outputs, three of them, without padding."""
    w = (width - 1) * stride + (cols - 1) * dilation + 1
    return noise(1, c, (rows - 1) * dilation + 1 + 2 * stride, w)


@pytest.mark.parametrize(("cols", "stride", "dilation"), OWN + GENERAL)
def test_every_width(cols: int, stride: int, dilation: int) -> None:
    for width in WIDTHS:
        c = (5, 16, 37, 50)[width % 4]
        x = image(c, 3, cols, stride, dilation, width)
        y = check(model(x, 3, cols, stride=stride, dilation=dilation), x)
        assert y.shape == (1, c, 3, width)


@pytest.mark.parametrize(("cols", "stride", "dilation"), OWN)
@pytest.mark.parametrize("rows", [1, 2, 3, 7])
@pytest.mark.parametrize("activation", ["", "relu6", "silu"])
def test_the_same_bits_without_a_microkernel_of_its_own(
    cols: int, stride: int, dilation: int, rows: int, activation: str
) -> None:
    attrs = {"stride": stride, "padding": (rows // 2, cols // 2, rows // 2, cols // 2)}
    for width in (1, 2, 6, 13, 14, 15, 29):
        x = image(37, rows, cols, stride, dilation, width)
        spec = model(x, rows, cols, activation, **attrs)
        got = ran(spec, x)
        for threads in (1, MANY):
            (general,) = run_tuned(spec, [x], threads, Tuning(by_filter=False))
            np.testing.assert_array_equal(general, got, strict=True)


#: Inputs and outputs of a group of which a register holds several.
GROUPS = [(2, 2), (4, 4), (8, 8), (1, 2), (1, 8), (2, 4), (3, 4), (5, 8)]


def kernels(spec: ModelSpec, x: Array, machine: Machine) -> list[str]:
    """Of the steps of its convolution."""
    steps = build_plan(simplify(spec), [x.shape], machine).steps
    return [s.kernel for s in steps if "conv" in s.layers and s.kernel in ("conv", "depthwise")]


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize(("cols", "stride", "dilation"), OWN + GENERAL)
def test_small_groups(group: tuple[int, int], cols: int, stride: int, dilation: int) -> None:
    """Of every width of a line; a last register that is not full; the same bits by both microkernels."""
    for width in (1, 2, 5, 12, 13, 14, 29):
        x = image((3, 11, 16)[width % 3] * group[0], 3, cols, stride, dilation, width)
        spec = model(x, 3, cols, group=group, stride=stride, dilation=dilation)
        y = check(spec, x)
        (general,) = run_tuned(spec, [x], MANY, Tuning(by_filter=False))
        np.testing.assert_array_equal(general, y, strict=True)


def test_which_groups_are_small() -> None:
    """Those that leave half of a panel's lanes empty; with one tap, three quarters of them."""
    wide, narrow, thin = Machine(lanes=16), Machine(lanes=8), Machine(lanes=4)
    for group, taps, by_lanes in (
        ((8, 8), 3, {16: "depthwise", 8: "conv", 4: "conv"}),
        ((4, 4), 3, {16: "depthwise", 8: "depthwise", 4: "conv"}),
        ((8, 8), 1, {16: "conv", 8: "conv", 4: "conv"}),
        ((4, 4), 1, {16: "depthwise", 8: "conv", 4: "conv"}),
        ((1, 2), 3, {16: "depthwise", 8: "depthwise", 4: "conv"}),
        ((8, 4), 3, dict.fromkeys((16, 8, 4), "conv")),
        ((6, 6), 3, dict.fromkeys((16, 8, 4), "conv")),
        ((1, 1), 3, dict.fromkeys((16, 8, 4), "depthwise")),
    ):
        x = noise(1, 8 * group[0], 6, 6)
        spec = model(x, taps, taps, group=group)
        for machine in (wide, narrow, thin):
            assert kernels(spec, x, machine) == [by_lanes[machine.lanes]], (group, taps, machine.lanes)


def test_nan_stays_in_its_group() -> None:
    x = noise(1, 40, 9, 9)
    x[0, 5, 4, 4], x[0, 39, 2, 2] = np.nan, np.inf
    y = check(model(x, 3, 3, group=(4, 4), padding=1), x)
    assert (np.isnan(y[0, 4:8]).sum(axis=(1, 2)) == 9).all()
    assert not np.isfinite(y[0, 36:40]).all(axis=(1, 2)).any()
    assert np.isfinite(np.delete(y[0], [4, 5, 6, 7, 36, 37, 38, 39], axis=0)).all()


@pytest.mark.parametrize("activation", ["", "hardswish"])
@pytest.mark.parametrize(("c", "side"), [(130, 30), (520, 9), (1024, 6)])
def test_many_channels_go_through_in_runs(c: int, side: int, activation: str) -> None:
    x = noise(2, c, side, side)
    check(model(x, 3, 3, activation, padding=1), x)
    check(model(x, 5, 5, activation, padding=2, stride=2), x)


def test_nan_and_infinities_stay_in_their_channel() -> None:
    x = noise(1, 20, 9, 9)
    x[0, 3, 4, 4], x[0, 17, 2, 2] = np.nan, np.inf
    y = check(model(x, 3, 3, padding=1), x)
    assert np.isnan(y[0, 3]).sum() == 9
    assert not np.isfinite(y[0, 17]).all()
    others = np.delete(y[0], [3, 17], axis=0)
    assert np.isfinite(others).all()


def test_a_run_of_channels_fits_l1() -> None:
    machine = Machine(lanes=16, l1=48 << 10)
    for registers, lines, pixels in ((24, 3, 14), (12, 3, 28), (30, 5, 14), (60, 3, 7)):
        run = channel_run(machine, registers, lines, pixels, 64 * registers)
        assert 1 < run < registers
        assert lines * pixels * run * 64 <= 0.7 * machine.l1
    # 64 channels, 112 pixels: no fewer registers than all would meet more of L1's sets
    assert channel_run(machine, 4, 3, 112, 256) == 4
    assert channel_run(machine, 1, 3, 1000, 64) == 1
