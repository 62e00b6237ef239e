"""A model judged by the torch module it was made from."""

import copy
from typing import Any

import numpy as np
import torch

import bslite
from bslite import ModelSpec, reference
from support.check import Array, assert_three_way

leaves = torch.utils._pytree.tree_leaves


def by_torch(module: Any, *inputs: Any) -> tuple[list[Array], list[Array]]:
    """All outputs of ``module`` for these tensors or arrays, in float32 and in float64."""
    given = [torch.as_tensor(x) for x in inputs]
    with torch.no_grad():
        peers = module(*given)
        double = copy.deepcopy(module).double()
        exact = double(*(x.double() if x.is_floating_point() else x for x in given))
    return [y.numpy() for y in leaves(peers)], [y.numpy() for y in leaves(exact)]


def check_by_torch(spec: ModelSpec, module: Any, *inputs: Any) -> list[Array]:
    """The outputs: as near to torch's in float64 as torch's in float32 are, the same bits by one thread. The
    reference agrees with torch in float64.
    """
    given = [np.asarray(x) for x in inputs]
    made, alone = (bslite.run(spec, given, threads=threads) for threads in (None, 1))
    found, peers, exact = leaves(made), *by_torch(module, *inputs)
    assert [y.tobytes() for y in found] == [y.tobytes() for y in leaves(alone)]
    for y, peer, want, ours in zip(found, peers, exact, reference.run(spec, given, np.float64), strict=True):
        assert_three_way(y, peer, want)
        np.testing.assert_allclose(ours, want, rtol=1e-12, atol=1e-13)
    return found
