"""Prologues as the code that a GPU would be given: the same bits as layer by layer, memory checked."""

import numpy as np
import pytest
from support.check import TINY, rel_l2
from support.noise import noise
from support.ptx_gpu import PtxDriver, ptx  # noqa: F401  (a fixture)
from test_gpu_prologue import ALWAYS, Model, kinds

import bslite
from bslite import reference
from bslite.engines.cuda import engine
from bslite.passes import simplify
from bslite.plan.cuda import build_plan
from bslite.spec import ModelSpec

pytestmark = pytest.mark.ptx


def blocks() -> ModelSpec:
    """An inverted residual block, a gated projection, a batch norm before a convolution."""
    m = Model(2, 10, 9, 12)
    x = m.add("tanh", m.x)
    y = m.add("relu6", m.conv(x, 36, 10))
    y = m.add("relu6", m.conv(y, 36, 36, 3, groups=36))
    x = m.add("add", m.conv(y, 10, 36), x)
    gate = m.add("sigmoid", m.conv(m.add("adaptive_avg_pool2d", x, output_size=1), 10, 10))
    y = m.conv(m.add("mul", x, gate), 6, 10)
    y = m.add("relu", m.norm(m.add("concat", x, y, axis=1), 16))
    return m.graph.build(m.conv(y, 8, 16, 3, stride=2))


def test_the_same_bits(ptx: PtxDriver) -> None:  # noqa: F811
    spec, x = blocks(), noise(2, 10, 9, 12)
    plan = build_plan(simplify(spec), [x.shape], PtxDriver.machine, tuning=ALWAYS)
    assert kinds(plan) == ["depthwise", "gate", "affine"]
    (got,) = engine.run(spec, [x], tuning=ALWAYS)
    exact, peer = (reference.run(spec, [x], dtype)[0] for dtype in (np.float64, np.float32))
    assert rel_l2(got, exact) <= 4 * rel_l2(peer, exact) + TINY
    assert got.tobytes() == bslite.run(spec, x, backend="cuda", layerwise=True).tobytes()
