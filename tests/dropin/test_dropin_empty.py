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


class SplitExperts(nn.Module):
    """Tokens sorted by their experts and split by how many each gets: sizes with a known sum."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(16, 3)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: Any) -> Any:
        rows = x.reshape(-1, 16)
        gates, chosen = self.router(rows).max(dim=1)
        sizes = nn.functional.one_hot(chosen, 3).sum(0).tolist()
        order = chosen.argsort(stable=True)
        pieces = rows[order].split(sizes, dim=0)
        made = torch.cat([e(p) for e, p in zip(self.experts, pieces, strict=True)]) * gates[order][:, None]
        return torch.zeros_like(rows).index_add(0, order, made).reshape(x.shape)


@pytest.mark.parametrize("tune", [True, False])
@pytest.mark.parametrize(
    ("shapes", "zeros"), [([(2, 12), (3, 5), (1, 40)], False), ([(1, 1), (1, 2), (2, 9)], True)], ids=str
)
def test_sizes_of_values_that_make_a_sum(shapes: list[tuple[int, int]], zeros: bool, tune: bool) -> None:
    """``zeros``: whether no sizes above zero make the sum, for some of the shapes."""
    torch.manual_seed(0)
    net = SplitExperts().eval()
    exact = copy.deepcopy(net).double()
    fast = bslite.optimize(copy.deepcopy(net), tune=tune, fallback="silent")
    for shape in (*shapes, shapes[0]):
        x = torch.randn(*shape, 16)
        with torch.no_grad():
            made, peer, truth = fast(x), net(x), exact(x.double())
        assert_three_way(made.numpy(), peer.numpy(), truth.numpy())
    assert runner_of(fast).in_torch == {}
    assert ("none above zero" in str(bslite.report(fast))) == zeros
