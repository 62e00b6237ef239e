"""Every operation `from_torch` knows, alone, against torch: one spec, run at two batch sizes."""

import numpy as np
import pytest
from support.torch_modules import CASES, Case, torch

from bslite import from_torch, reference


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # torch's, of its own speed
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_agrees_with_torch(case: Case) -> None:
    torch.manual_seed(0)
    module = case.module().eval()
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 2.0)
    spec = from_torch(module, torch.randn(1, *case.shape))
    assert spec.inputs[0].shape == ("N", *case.shape)
    assert " ".join(n.op for n in spec.nodes if n.op != "constant") == case.ops
    for batch in (1, 3):
        x = torch.randn(batch, *case.shape) * 2
        with torch.no_grad():
            want = module(x.clone()).numpy()  # some work in place
        (got,) = reference.run(spec, [x.numpy()], np.float32)
        assert got.shape == want.shape
        assert np.linalg.norm(got - want) <= 2e-6 * np.linalg.norm(want) + 1e-30
