"""Models by the code that a GPU would be given, longer than the cases of ops are: rows over several blocks,
sorting in several launches, prologues, networks in two orders of blocks and warps.
"""

from typing import Any

import numpy as np
import pytest
import torch
from support.check import assert_three_way
from support.gpu_cases import check_near, spec_of
from support.layers import Model
from support.noise import noise
from support.plans import gpu_plan_of
from support.ptx_gpu import PtxDriver, ptx  # noqa: F401  (a fixture)
from support.torchvision_models import model
from test_gpu_index import same_bits
from test_gpu_prologue import ALWAYS, kinds

import bslite
from bslite import reference
from bslite.engines.cuda import engine
from bslite.kernels.contracts.cuda.stack import StackVariant
from bslite.kernels.cuda.runtime.device import SIMULATED
from bslite.plan.cuda.tuning import Tuning

pytestmark = [pytest.mark.ptx, pytest.mark.skipif(not SIMULATED, reason="there is a GPU to run them on")]


@pytest.mark.parametrize(
    ("op", "attrs"), [("softmax", {"axis": 1}), ("log_softmax", {"axis": 1}), ("normalize", {"axis": 1})]
)
def test_long_rows(op: str, attrs: dict[str, Any], ptx: PtxDriver) -> None:  # noqa: F811
    x = noise(2, 30000)
    spec = spec_of(op, x, **attrs)
    check_near(bslite.run(spec, x, backend="cuda"), spec, x)
    assert sum(step.kernel.endswith(("_part", "_join")) for step, _ in ptx.counted) == 2


@pytest.mark.parametrize("k", [10, 5000])
def test_rows_longer_than_a_tile(k: int, ptx: PtxDriver) -> None:  # noqa: F811
    x = np.random.default_rng(k).integers(-90, 90, (1, 5000)).astype(np.float32)
    spec = spec_of("topk", x, k=k, axis=1)
    got = bslite.run(spec, x, backend="cuda")
    np.testing.assert_array_equal(got, reference.run(spec, [x], np.float32)[0])
    assert "topk_merge" in {step.kernel for step, _ in ptx.counted}


def test_sorted_updates(ptx: PtxDriver) -> None:  # noqa: F811
    rng = np.random.default_rng(1)
    x, u = (rng.standard_normal(s).astype(np.float32) for s in ((6, 7, 5), (300, 5)))
    tuning = Tuning(sorted_updates=100)
    same_bits("scatter_nd", x, rng.integers(-6, 6, (300, 2)), u, tuning=tuning, reduction="add")


def test_prologues_have_the_same_bits(ptx: PtxDriver) -> None:  # noqa: F811
    """A gated projection after an inverted residual block, a batch norm before a convolution."""
    m = Model(2, 10, 9, 12)
    x = m.add("tanh", m.x)
    y = m.add("relu6", m.conv(x, 36, 10))
    y = m.add("relu6", m.conv(y, 36, 36, 3, groups=36))
    x = m.add("add", m.conv(y, 10, 36), x)
    gate = m.add("sigmoid", m.conv(m.add("adaptive_avg_pool2d", x, output_size=1), 10, 10))
    y = m.conv(m.add("mul", x, gate), 6, 10)
    y = m.add("relu", m.norm(m.add("concat", x, y, axis=1), 16))
    spec, x = m.graph.build(m.conv(y, 8, 16, 3, stride=2)), noise(2, 10, 9, 12)
    plan = gpu_plan_of(spec, x.shape, machine=PtxDriver.machine, tuning=ALWAYS)
    assert kinds(plan) == ["gate", "affine"]
    (got,) = engine.run(spec, [x], tuning=ALWAYS)
    check_near(got, spec, x)
    assert got.tobytes() == bslite.run(spec, x, backend="cuda", layerwise=True).tobytes()


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf, -np.inf])
def test_stacks_with_maxima_of_integers(ptx: PtxDriver, value: float) -> None:  # noqa: F811
    """As a newer GPU takes them, with steps compiled in: the bits of layer by layer, specials, too."""
    m = Model(1, 8, 9, 11)
    y = m.x
    for _ in range(3):
        y = m.add("relu", m.norm(m.add("max_pool2d", y, kernel=3, stride=1, padding=1), 8))
    spec, x = m.graph.build(y), noise(1, 9, 11, 8, scale=2).transpose(0, 3, 1, 2)
    x[0, 3, 4, 5] = value
    got = bslite.run(spec, x, backend="cuda")
    (stack,) = [step.variant for step, _ in ptx.counted if step.kernel == "stack"]
    assert isinstance(stack, StackVariant)
    assert (stack.steps[0], stack.threes) == (8, 1)
    assert got.tobytes() == bslite.run(spec, x, backend="cuda", layerwise=True).tobytes()
    if np.isfinite(value):
        check_near(got, spec, x)
    assert np.isnan(got).any() == np.isnan(value)


def test_a_network(ptx: PtxDriver) -> None:  # noqa: F811
    """The one whose plan has most of what makes this engine depth-first; gates and batch norms before a
    product are in the test before.
    """
    module, x = model("mobilenet_v2"), noise(1, 3, 64, 64)
    spec = bslite.from_torch(module, torch.from_numpy(x))
    got = bslite.run(spec, x, backend="cuda")
    with torch.no_grad():
        peer = module(torch.from_numpy(x)).numpy()
    assert_three_way(got, peer, reference.run(spec, [x], np.float64)[0])
    assert {step.kernel for step, _ in ptx.counted} >= {"stack", "gemm_pairs"}
    ptx.seed = 1
    np.testing.assert_array_equal(bslite.run(spec, x, backend="cuda").view(np.int32), got.view(np.int32))


@pytest.mark.parametrize(
    ("precision", "width", "multiply"), [("ieee", "v4", "fma"), ("float32", "v2", "mma")]
)
def test_no_bank_conflicts(ptx: PtxDriver, precision: str, width: str, multiply: str) -> None:  # noqa: F811
    """Products read shared memory 16 bytes at a time, for tensor cores 8, each access in as many passes as it
    must take.
    """
    m = Model(2, 64, 28, 28)
    bslite.run(
        m.graph.build(m.conv(m.x, 64, 64, 3, bias=False)),
        np.ones((2, 64, 28, 28), np.float32),
        backend="cuda",
        precision=precision,
    )
    products = [counted for step, counted in ptx.counted if step.kernel == "gemm_pairs"]
    assert products
    for counted in products:
        reads = counted.of(f"ld.shared.{width}", counted.warps)
        # A warp's threads take 512 bytes in four passes of 128, or 256 in two.
        assert 0 < counted.of(f"ld.shared.{width}", counted.waves) <= int(width[1]) * reads
        least = 0.4 if multiply == "fma" else 0.05  # each of these is worth 32 multiply-adds of a warp
        assert counted.of(multiply, counted.warps) > least * counted.warps.sum()
