"""Random networks from torch: as exact as torch, and the same bits for any threads, depth-first or not; the
same of gradients, in training mode.
"""

import copy
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from support.check import assert_three_way, rel_l2
from support.plans import run_tuned
from support.random_nets import random_net
from torch import Tensor, nn

import bslite
from bslite.plan.cpu.tuning import Tuning

LUCKY = 2.0**-22  # an error of torch's below which it was lucky
LOST = 1e-5  # one from which on a gradient is rounding more than anything else


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


def gradients(net: nn.Module, x: Tensor) -> list[Tensor | None]:
    """Of the input and of each parameter, for the same weights of the results."""
    x = x.clone().requires_grad_(True)
    made = net(x)
    torch.manual_seed(0)
    (made * torch.randn(made.shape, dtype=torch.float64).to(made.dtype)).sum().backward()
    return [x.grad, *(p.grad for p in net.parameters())]


def check_gradients(seed: int) -> None:
    """But for those that are nothing but rounding, of what a norm behind takes away."""
    (net, x), (double, _), (ours, _) = (random_net(seed) for _ in range(3))
    peers, exact = gradients(net.train(), x), gradients(double.train().double(), x.double())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch runs what has no gradient here
        found = gradients(bslite.optimize(ours.train()), x)
    for mine, peer, true in zip(found, peers, exact, strict=True):
        assert (mine is None) == (peer is None)
        if mine is not None and peer is not None and true is not None:
            arrays = [t.numpy() for t in (mine, peer, true)]
            if rel_l2(*arrays[1:]) < LOST:
                assert_three_way(*arrays, factor=6.0, least=LUCKY)


CHECKS = pytest.mark.parametrize("check", [check, check_gradients])


@CHECKS
@pytest.mark.parametrize("seed", range(16))
def test_some(seed: int, check: Callable[[int], None]) -> None:
    check(seed)


@CHECKS
@pytest.mark.fuzz
@pytest.mark.parametrize("first", range(40, 160, 20))
def test_many(first: int, check: Callable[[int], None]) -> None:
    for seed in range(first, first + 20):
        try:
            check(seed)
        except Exception as e:
            raise AssertionError(f"seed {seed}") from e


@pytest.mark.parametrize("behind", ["linear", "maximum"])
def test_a_batch_norm_beside_what_it_reads(behind: str) -> None:
    """A store adds its gradient to the other one, channel by channel; in rows, channels lie apart."""

    class Beside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear = nn.BatchNorm1d(40), nn.Linear(24, 33)

        def forward(self, x: Tensor) -> Tensor:
            if behind == "linear":
                return self.linear(x + self.norm(x))
            return torch.maximum(torch.maximum(self.norm(x), x), x)

    torch.manual_seed(0)
    net, x = Beside().train(), torch.randn(3, 40, 24)
    exact = gradients(copy.deepcopy(net).double(), x.double())
    found = gradients(bslite.optimize(copy.deepcopy(net)), x)
    for mine, peer, true in zip(found, gradients(net, x), exact, strict=True):
        if mine is not None and peer is not None and true is not None:
            assert_three_way(mine.numpy(), peer.numpy(), true.numpy(), least=LUCKY)
