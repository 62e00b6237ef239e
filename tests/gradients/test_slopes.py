"""Gradients of activations where they are undecided: torch's choice."""

import numpy as np
import pytest
import torch

import bslite
from bslite import GraphBuilder, reference


@pytest.mark.parametrize("name", ["relu", "relu6"])
def test_edges_and_nan(name: str) -> None:
    g = GraphBuilder("edges")
    spec = g.build(g.add(name, "act", g.input("x", (24,))))
    backward = bslite.gradient(spec, ["x"])
    x = np.resize(np.array([np.nan, 0.0, -0.0, 6.0, 1.0, -1.0, np.inf, -np.inf, 7.0], "f4"), 24)
    if name == "relu6":  # torch's own, of NaN, depends on where in memory it is
        x[np.isnan(x)] = 3.0
    seed = np.arange(1, 25, dtype="f4")
    leaf = torch.from_numpy(x.copy()).requires_grad_()
    getattr(torch.nn.functional, name)(leaf).backward(torch.from_numpy(seed))
    for made in (bslite.run(backward, [x, seed]), reference.run(backward, [x, seed], np.float32)):
        np.testing.assert_array_equal(made[1], leaf.grad.numpy())
