"""Layers that run on the way into a convolution on a GPU: which do, and that it changes no bit."""

import numpy as np
import pytest
from support.check import Array
from support.gpu_cases import check_spec_on_cuda
from support.layers import Model
from support.noise import noise
from support.plans import gpu_plan_of

from bslite import ModelSpec, reference
from bslite.engines.cuda import engine
from bslite.engines.cuda.simulated import SimulatedDriver
from bslite.plan import Plan
from bslite.plan.cuda.tuning import Tuning

pytestmark = pytest.mark.simulator

MACHINE = SimulatedDriver.machine
PRODUCTS = ("gemm", "gemm_pairs")


def kinds(plan: Plan) -> list[str]:
    """Of each product that has one, which."""
    found = [s.variant.constants()["before"] for s in plan.steps if s.kernel in PRODUCTS]
    return [kind for kind in found if kind != "none"]


#: Every pair that can be one launch is one, whatever its price.
ALWAYS = Tuning(prologues=True)


def check(spec: ModelSpec, *inputs: Array, tuning: Tuning = ALWAYS) -> Plan:
    """Three-way; the same bits layer by layer, and when every value is kept. The plan."""
    check_spec_on_cuda(spec, *inputs, tuning=tuning)
    shapes = [x.shape for x in inputs]
    assert kinds(gpu_plan_of(spec, *shapes, machine=MACHINE, layerwise=True, tuning=tuning)) == []
    assert kinds(gpu_plan_of(spec, *shapes, machine=MACHINE, keep_values=True, tuning=tuning)) == []
    return gpu_plan_of(spec, *shapes, machine=MACHINE, tuning=tuning)


@pytest.mark.parametrize(("c", "act"), [(10, "relu"), (7, "sigmoid")])
@pytest.mark.parametrize("r", [1, 3])
def test_a_batch_norm_before_a_convolution(c: int, act: str, r: int) -> None:
    """As in DenseNet: of a slice of a wider buffer, into another; padding is zero after the batch norm."""
    m = Model(2, c, 5, 4)
    old = m.add("relu", m.x)
    y = m.conv(m.add(act, m.norm(old, c)), 6, c, r, bias=False)
    new = m.add("concat", old, y, axis=1)
    y = m.conv(m.add(act, m.norm(new, c + 6)), 8, c + 6, r, stride=2)
    assert kinds(check(m.graph.build(y), noise(2, c, 5, 4))) == ["affine", "affine"]


@pytest.mark.parametrize(("c", "act"), [(12, None), (9, "silu")])
def test_a_gate_before_a_projection(c: int, act: str | None) -> None:
    """As in EfficientNet: squeeze-and-excitation, then a projection with a residual."""
    m = Model(3, c, 4, 5)
    x = m.add("silu", m.x)
    gate = m.add("sigmoid", m.conv(m.add("adaptive_avg_pool2d", x, output_size=1), c, c))
    y = m.add("mul", gate, x)
    y = m.conv(m.add(act, y) if act else y, c, c)
    y = m.add("add", y, x)
    assert kinds(check(m.graph.build(y), noise(3, c, 4, 5))) == ["gate"]


def test_sums_in_parts() -> None:
    """Parts are those of the bare product, and each part makes its own channels of what lies between."""
    tuning = Tuning(prologues=True, parts=lambda terms: max(1, min(3, terms // 24)))
    m = Model(1, 18, 3, 4)
    x = m.add("tanh", m.x)
    y = m.conv(m.add("relu", m.conv(x, 72, 18)), 18, 72)
    y = m.conv(m.add("relu", m.norm(m.add("concat", y, x, axis=1), 36)), 20, 36, 3)
    plan = check(m.graph.build(y), noise(1, 18, 3, 4), tuning=tuning)
    assert kinds(plan) == ["affine"]
    assert [s.record.numbers()["splits"] for s in plan.steps if s.kernel == "gemm_join"] == [3, 3]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["affine", "gate"])
def test_specials_reach_what_reads_them(kind: str, value: float) -> None:
    """And nothing else: not what lies beyond the image, the last pixel or the last channel."""
    n, c, *_ = shape = (2, 6, 4, 5)
    m = Model(*shape)
    x = m.add("concat", m.x, m.x, axis=1)
    if kind == "affine":
        y = m.conv(m.norm(x, 2 * c), 8, 2 * c, 3)
    else:
        gate = m.graph.input("gate", (n, 2 * c, 1, 1))
        y = m.conv(m.add("mul", x, gate), 8, 2 * c)
    spec = m.graph.build(y)
    for place in ((0, 0, 0, 0), (1, 5, 3, 4), (1, 2, 1, 2)):
        inputs = [noise(*shape)] + ([noise(n, 2 * c, 1, 1)] if kind == "gate" else [])
        inputs[-1][place[:2] + ((0, 0) if kind == "gate" else place[2:])] = value
        assert kinds(gpu_plan_of(spec, *(i.shape for i in inputs), machine=MACHINE, tuning=ALWAYS)) == [kind]
        with np.errstate(all="ignore"):
            want = reference.run(spec, inputs, np.float64)[0]
        (got,) = engine.run(spec, inputs, tuning=ALWAYS)
        for find in (np.isnan, np.isposinf, np.isneginf):
            np.testing.assert_array_equal(find(got), find(want))
        assert 0 < np.isfinite(want).sum() < want.size


def launches(plan: Plan) -> list[str]:
    """Kernels between the copies of the caller's arrays."""
    return [s.kernel for s in plan.steps if s.kernel not in ("copy", "transpose", "elementwise")]


@pytest.mark.parametrize("batch", [1, 16, 128])
def test_an_efficientnet_block_makes_no_gated_image(batch: int) -> None:
    m = Model(batch, 40, 28, 28)
    x = m.add("relu", m.x)
    y = m.add("silu", m.conv(x, 240, 40))
    y = m.add("silu", m.conv(y, 240, 240, 5, groups=240))
    gate = m.add("silu", m.conv(m.add("adaptive_avg_pool2d", y, output_size=1), 10, 240))
    gate = m.add("sigmoid", m.conv(gate, 240, 10))
    y = m.add("add", m.conv(m.add("mul", gate, y), 40, 240), x)
    plan = m.plan(y)
    assert kinds(plan) == ["gate"]
    assert sum(step.written == 4 * 240 * 28 * 28 * batch for step in plan.steps) == 2


@pytest.mark.parametrize("batch", [1, 16, 128])
def test_a_dense_layer_is_two_launches(batch: int) -> None:
    """Batch norm, ReLU and a pointwise convolution; ReLU in its store; a 3x3 convolution into the concat."""
    m = Model(batch, 64, 56, 56)
    x, c = m.conv(m.x, 64, 64), 64
    for _ in range(3):
        y = m.add("relu", m.norm(x, c)) if c > 64 else x
        y = m.add("relu", m.conv(y, 128, c, bias=False))
        x = m.add("concat", x, m.conv(y, 32, 128, 3, bias=False), axis=1)
        c += 32
    plan = m.plan(m.add("relu", m.conv(x, 16, c)))
    assert kinds(plan) == ["affine", "affine"]
    assert [k for k in launches(plan) if k != "gemm_join"] == ["gemm_pairs"] * 8


def test_what_is_read_twice_or_asked_for_is_in_memory() -> None:
    m = Model(4, 16, 14, 14)
    y = m.norm(m.add("concat", m.x, m.x, axis=1), 32)
    once = m.conv(y, 16, 32)
    assert kinds(m.plan(y, once)) == []
    assert kinds(m.plan(m.add("mul", once, m.conv(y, 16, 32, 3)))) == []


@pytest.mark.parametrize(("start", "width", "kept"), [(2, 6, 1), (2, 5, 0), (1, 6, 0)])
def test_slices_of_a_concat(start: int, width: int, kept: int) -> None:
    """As in ShuffleNet v2: half of the channels in, a slice of a wider buffer out. What begins at odd
    channels, or is written to such, goes in single floats.
    """
    m = Model(2, 5, 6, 7)
    other = m.conv(m.x, width, 5)
    x = m.conv(m.x, 12, 5)
    part = m.add("slice", x, axis=1, start=start, stop=start + 8, step=1)
    y = m.conv(m.add("relu", m.norm(part, 8)), 4, 8, 3, stride=2, padding=1)
    halved = m.add("max_pool2d", other, kernel=1, stride=2)
    y = m.add("concat", halved, m.add("relu", y), axis=1)
    plan = check(m.graph.build(m.conv(y, 3, width + 4, 3)), noise(2, 5, 6, 7))
    (step,) = (s for s in plan.steps if s.variant.constants().get("before", "none") != "none")
    assert step.kernel == ("gemm_pairs" if kept else "gemm")


@pytest.mark.parametrize("layout", ["planes", "pixels"])
def test_the_callers_own_arrays(layout: str) -> None:
    """What a caller gives may begin anywhere: pairs are taken of a copy of it, or not at all."""
    m = Model(1, 4, 5, 6)
    y = m.conv(m.add("relu6", m.conv(m.x, 4, 4, 3, groups=4)), 6, 4)
    x = noise(1, 4, 5, 6)
    if layout == "pixels":
        x = x.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
    check(m.graph.build(m.add("relu", y)), x)


def test_few_pixels_and_a_residual() -> None:
    """A product of few rows is another kernel's, with or without what follows it."""
    m = Model(1, 24, 1, 2)
    x = m.add("relu", m.x)
    y = m.conv(m.add("relu", m.conv(x, 70, 24)), 24, 70)
    check(m.graph.build(m.add("relu", m.add("add", y, x))), noise(1, 24, 1, 2))
