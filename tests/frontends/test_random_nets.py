"""Random networks from torch: as exact as torch, and the same bits for any threads, depth-first or not."""

import warnings

import numpy as np
import pytest
import torch
from support.check import assert_three_way
from support.plans import run_tuned
from support.random_nets import random_net

import bslite
from bslite.plan.cpu.tuning import Tuning

LUCKY = 2.0**-22  # an error of torch's below which it was lucky


def check(seed: int) -> None:
    net, x = random_net(seed)
    with torch.no_grad():
        peer = net(x).numpy()
        exact = net.double()(x.double()).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a batch is fixed
        spec = bslite.from_torch(net.float(), (x,))
    got = bslite.run(spec, x.numpy(), threads=2)
    assert_three_way(got, peer, exact, least=LUCKY)
    (alone,) = run_tuned(spec, [x.numpy()], 1, Tuning())
    np.testing.assert_array_equal(got, alone)
    np.testing.assert_array_equal(got, bslite.run(spec, x.numpy(), layerwise=True))


@pytest.mark.parametrize("seed", range(40))
def test_some(seed: int) -> None:
    check(seed)


@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(40, 440, 20))
def test_many(first: int) -> None:
    for seed in range(first, first + 20):
        try:
            check(seed)
        except Exception as e:
            e.add_note(f"seed {seed}") if hasattr(e, "add_note") else None
            raise
