"""Selections by a mask that select nothing: parts that read them are torch's in that call, others are not."""

import copy
import itertools
from typing import Any

import pytest
from support.check import assert_three_way
from support.dropin_models import nn, torch

import bslite
from bslite.dropin.runner import runner_of

MASKS = {"none": torch.zeros(3, 7, dtype=torch.bool), "some": torch.arange(21).reshape(3, 7) % 3 == 0,
         "all": torch.ones(3, 7, dtype=torch.bool)}  # fmt: skip


class Experts(nn.Module):
    """Tokens of two kinds, each by layers of its own, as models of words and pictures have them."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Sequential(nn.Linear(16, 40), nn.GELU(), nn.Linear(40, 16))
        self.pictures = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 16))
        self.norm = nn.LayerNorm(16)

    def forward(self, x: Any, mask: Any) -> Any:
        y = x.masked_scatter(mask[..., None], self.words(x[mask]))
        return self.norm(x + y.masked_scatter(~mask[..., None], self.pictures(y[~mask])))


@pytest.mark.parametrize("tune", [True, False])
@pytest.mark.parametrize("order", [*itertools.permutations(MASKS)], ids="-".join)
def test_selections_of_nothing(order: tuple[str, ...], tune: bool) -> None:
    torch.manual_seed(0)
    net = Experts().eval()
    exact = copy.deepcopy(net).double()
    fast = bslite.optimize(copy.deepcopy(net), tune=tune, fallback="silent")
    for name in (*order, order[0]):
        x, mask = torch.randn(3, 7, 16), MASKS[name]
        with torch.no_grad():
            made, peer, truth = fast(x, mask), net(x, mask), exact(x.double(), mask)
        assert_three_way(made.numpy(), peer.numpy(), truth.numpy())
    assert runner_of(fast).in_torch == {}  # no call as a whole


def test_what_torch_computes_takes_the_present_weights() -> None:
    net = Experts().eval()
    fast = bslite.optimize(copy.deepcopy(net), tune=False, fallback="silent")
    x, mask = torch.randn(3, 7, 16), MASKS["none"]
    with torch.no_grad():
        fast(x, mask)
        for layer in (net.norm, fast.norm):
            layer.weight.mul_(2).add_(1)
        made, peer = fast(x, mask), net(x, mask)
    torch.testing.assert_close(made, peer)
    assert runner_of(fast).in_torch == {}
