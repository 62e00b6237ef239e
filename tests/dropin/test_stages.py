"""Parts in training, cut into stages that have about a bucket of parameters."""

from typing import Any

import pytest
import torch
from support.dropin_models import near
from torch import Tensor, nn

import bslite
from bslite.dropin.runner import runner_of
from bslite.dropin.stages import most_bytes

KIB = 1 / 1024  # of a MB


class Branches(nn.Module):
    """Narrow between its blocks, wide inside them, where two paths run beside each other."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.wide = nn.ModuleList(nn.Linear(16, 64) for _ in range(blocks))
        self.narrow = nn.ModuleList(nn.Linear(64, 16) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        for wide, narrow in zip(self.wide, self.narrow, strict=True):
            x = x + narrow(wide(x).relu())
        return x


def stages_of(module: nn.Module, x: Tensor, kib: float) -> list[list[int]]:
    """The shapes' products of each stage's weights, in the order in which stages run."""
    fast = bslite.optimize(module.train(), training=True, tune=False, bucket_mb=kib * KIB)
    fast(x).sum().backward()
    assert runner_of(fast).in_torch == {}
    (trained,) = runner_of(fast).trainer.made._values.values()
    return [[w.numel() for w in part.weights] for part in trained.parts]


def test_cuts_are_where_little_crosses() -> None:
    """A block has 8.3 KiB: each stage is a block, and none begins inside one, where more crosses."""
    block = [64 * 16, 64, 16 * 64, 16]
    found = stages_of(Branches(4), torch.randn(3, 16), 9)
    assert [sorted(each) for each in found] == [sorted(block)] * 4
    assert [len(each) for each in stages_of(Branches(4), torch.randn(3, 16), 18)] == [8, 8]
    assert len(stages_of(Branches(4), torch.randn(3, 16), 1000)) == 1


def test_a_layer_larger_than_a_bucket_is_a_stage() -> None:
    net = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 512), nn.Tanh(), nn.Linear(512, 2))
    assert stages_of(net, torch.randn(3, 16), 4) == [[16 * 8, 8], [8 * 512, 512], [512 * 2, 2]]


def test_layers_with_several_results_stay_whole() -> None:
    class Cells(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LSTM(8, 8, num_layers=3, bidirectional=True)
            self.norms = nn.ModuleList(nn.BatchNorm1d(16) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            y, (h, _) = self.cells(x)
            for norm in self.norms:
                y = norm(y.transpose(1, 2)).transpose(1, 2)
            return y.sum(0) + h.sum(0).repeat(1, 2)

    stages_of(Cells(), torch.randn(3, 4, 8), 0.1)


@pytest.mark.parametrize("kib", [0.001, 3, 20])
def test_gradients_are_those_of_one_part(kib: float) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 9, 3, bias=False), nn.BatchNorm2d(9), nn.SiLU(), nn.Flatten(), nn.Linear(36, 5),
    ).train()  # fmt: skip
    x, grads = torch.randn(4, 3, 10, 10), []
    for limit in (None, kib * KIB):
        net.zero_grad()
        bslite.optimize(net, training=True, tune=False, bucket_mb=limit, fallback="error")(
            x
        ).square().sum().backward()
        grads.append([p.grad for p in net.parameters()])
    net.zero_grad()
    assert len(stages_of(net, x, kib)) > (kib < 10)
    for a, b in zip(*grads, strict=True):
        assert a is not None
        near(a, b)


def test_the_limit_is_a_bucket_where_processes_train_together(monkeypatch: pytest.MonkeyPatch) -> None:
    assert most_bytes(None) is None
    assert most_bytes(2.0) == 2 << 20
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    assert most_bytes(None) == 25 << 20


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan")])
def test_a_limit_that_is_none(wrong: Any) -> None:
    with pytest.raises(bslite.InputError, match="bucket_mb"):
        bslite.optimize(nn.Linear(2, 2), training=True, bucket_mb=wrong)
