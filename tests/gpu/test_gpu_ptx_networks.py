"""Whole networks by the code that a GPU would be given, in two orders of blocks and warps."""

import numpy as np
import pytest
from support.check import assert_three_way
from support.noise import noise
from support.ptx_gpu import PtxDriver, ptx  # noqa: F401  (a fixture)
from support.torchvision_models import model

import bslite
from bslite import reference
from bslite.kernels.cuda.runtime.device import SIMULATED

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.ptx, pytest.mark.skipif(not SIMULATED, reason="there is a GPU to run them on")]

#: What their plans must have of what makes this engine depth-first.
NETWORKS = {
    "mobilenet_v2": {"stack", "gemm_depthwise"},
    "efficientnet_b0": {"stack"},
    "densenet121": {"stack"},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_three_way(name: str, ptx: PtxDriver) -> None:  # noqa: F811
    module = model(name).eval()
    x = noise(1, 3, 64, 64)
    spec = bslite.from_torch(module, torch.from_numpy(x))
    got = bslite.run(spec, x, backend="cuda")
    with torch.no_grad():
        peer = module(torch.from_numpy(x)).numpy()
    assert_three_way(got, peer, reference.run(spec, [x], np.float64)[0])
    assert {step.kernel for step, _ in ptx.counted} >= NETWORKS[name]
    ptx.seed = 1
    np.testing.assert_array_equal(bslite.run(spec, x, backend="cuda").view(np.int32), got.view(np.int32))


def test_no_bank_conflicts(ptx: PtxDriver) -> None:  # noqa: F811
    """Products read shared memory 16 bytes at a time, each access in as many passes as it must take."""
    graph = bslite.GraphBuilder("net")
    x = graph.input("x", (2, 64, 28, 28))
    graph.params["w"] = np.ones((64, 64, 3, 3), np.float32)
    spec = graph.build(graph.add("conv2d", "c", x, params={"weight": "w"}, padding=(1, 1)))
    bslite.run(spec, np.ones((2, 64, 28, 28), np.float32), backend="cuda")
    products = [counted for step, counted in ptx.counted if step.kernel == "gemm_pairs"]
    assert products
    for counted in products:
        reads = counted.of("ld.shared.v4", counted.warps)
        # A warp's threads take 512 bytes, in four passes of 128.
        assert 0 < counted.of("ld.shared.v4", counted.waves) <= 4 * reads
        assert counted.of("fma", counted.warps) > 0.4 * counted.warps.sum()
