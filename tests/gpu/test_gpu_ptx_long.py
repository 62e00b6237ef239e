"""Rows over several blocks, and sorting in several launches, as PTX: longer than the cases of ops are."""

from typing import Any

import numpy as np
import pytest
from support.check import assert_three_way
from support.noise import noise
from support.ptx_gpu import PtxDriver, ptx  # noqa: F401  (a fixture)
from test_gpu_index import spec_of

import bslite
from bslite import reference
from bslite.engines.cuda import engine
from bslite.plan.cuda.tuning import Tuning

pytestmark = pytest.mark.ptx


@pytest.mark.parametrize(
    ("op", "attrs"), [("softmax", {"axis": 1}), ("log_softmax", {"axis": 1}), ("normalize", {"axis": 1})]
)
def test_long_rows(op: str, attrs: dict[str, Any], ptx: PtxDriver) -> None:  # noqa: F811
    x = noise(2, 30000)
    spec = spec_of(op, x, **attrs)
    exact, peer = (reference.run(spec, [x], kind)[0] for kind in (np.float64, np.float32))
    assert_three_way(bslite.run(spec, x, backend="cuda"), peer, exact)
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
    given = [x, rng.integers(-6, 6, (300, 2)), u]
    spec = spec_of("scatter_nd", *given, reduction="add")
    (got,) = engine.run(spec, given, tuning=Tuning(sorted_updates=100))
    assert got.tobytes() == bslite.run(spec, given, backend="cpu").tobytes()
