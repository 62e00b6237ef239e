"""In training, what torch runs faster forwards and backwards stays in torch; measuring leaves no trace."""

from typing import Any

import pytest
import torch
from support.torch_modules import Made
from support.training import alike, step
from torch import Tensor, nn

import bslite
from bslite.dropin.reasons import SLOWER
from bslite.dropin.runner import runner_of
from bslite.dropin.training import part

OURS, THEIRS = (1.0, 2.0), (2.0, 1.0)


def normed() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Flatten(),
        nn.Linear(6 * 49, 3),
    )  # fmt: skip


def in_two_parts() -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        return m.last(torch.special.i0e(m.norm(m.first(x)).relu()).square())

    return Made(forward, first=nn.Linear(12, 8), norm=nn.BatchNorm1d(8), last=nn.Linear(8, 3))


@pytest.mark.parametrize("measured", [[OURS, THEIRS], [THEIRS, OURS], [OURS, OURS]])
def test_a_part_stays_where_it_is_faster(
    measured: list[tuple[float, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list(measured)
    monkeypatch.setattr(part, "seconds", lambda *given: left.pop(0))
    torch.manual_seed(0)
    net = in_two_parts().train()
    alike(net, [(torch.randn(5, 12),) for _ in range(3)], tune=True)
    assert left == []


def test_a_module_that_is_faster_in_torch_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "seconds", lambda *given: THEIRS)
    torch.manual_seed(0)
    alike(normed().train(), [(torch.randn(2, 3, 9, 9),) for _ in range(3)], reason=SLOWER, tune=True)
    net = bslite.optimize(normed().train(), training=True)  # which is no warning
    for _ in range(2):
        step(net, [torch.randn(2, 3, 9, 9)])
    assert runner_of(net).in_torch == {f"in training, {SLOWER}": 1}


def test_measuring_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in gradients, statistics, drawn numbers nor hooks, of parameters and of what is saved."""
    measure, measured = part.seconds, []

    def seconds(*given: Any) -> tuple[float, float]:
        measured.append(measure(*given))
        return OURS

    monkeypatch.setattr(part, "seconds", seconds)
    torch.manual_seed(0)
    net: Any = normed().train()
    alike(net, [(torch.randn(2, 3, 9, 9).requires_grad_(),) for _ in range(2)], tune=True)
    seen: list[str] = []
    net[0].weight.register_hook(lambda grad: seen.append("hook"))
    ours = bslite.optimize(net, training=True)
    saved: list[int] = []
    for _ in range(2):
        with torch.autograd.graph.saved_tensors_hooks(lambda x: (saved.append(1), x)[1], lambda x: x):
            ours(torch.randn(2, 3, 9, 9))
        saved.append(0)
    assert seen == []
    assert saved.index(0) * 2 + 2 == len(saved)  # as many by the first call as by the second
    assert len(measured) == 2
    assert min(map(min, measured)) > 0


def test_nothing_is_measured_without_tune(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "seconds", lambda *given: pytest.fail("it was measured"))
    step(bslite.optimize(normed().train(), training=True, tune=False), [torch.randn(2, 3, 9, 9)])


@pytest.mark.parametrize("measured", [OURS, THEIRS])
def test_packed_sequences_are_measured_as_quietly(
    measured: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their stand-ins among torch's operations have gradients, of which torch does not warn."""

    def forward(m: Any, x: Tensor, lengths: Tensor) -> Tensor:
        y, _ = m.cells(nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))
        return torch.special.i0e(m.last(nn.utils.rnn.pad_packed_sequence(y)[0]))

    measure = part.seconds
    monkeypatch.setattr(part, "seconds", lambda *given: (measure(*given), measured)[1])
    torch.manual_seed(0)
    net = Made(forward, cells=nn.LSTM(5, 6, bidirectional=True), last=nn.Linear(12, 3)).train()
    given = [(torch.randn(7, 3, 5), torch.tensor([7, 3, 5])) for _ in range(2)]
    alike(net, given, reason=SLOWER if measured is THEIRS else "", tune=True)
