"""The command on training: what it measures, and what it writes."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import roofline, training
from benchmarks import training_steps as steps
from benchmarks.training import Result
from benchmarks.training_steps import EAGER, LAST, OURS
from bslite.verification import FACTOR


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small network in the place of VGG."""

    def made(name: str) -> nn.Module:
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 10)
        return nn.Sequential(*layers).train()

    for module in (training, steps):
        monkeypatch.setattr(module, "made", made)
    monkeypatch.setattr(training, "SECONDS", 0.0)
    monkeypatch.setattr(steps, "arithmetic", lambda *how: 1e6)


def found(name: str, ours: float, batch: int = 16, **more: Any) -> Result:
    """A result in which eager takes 0.3 s, with channels last 0.2 s."""
    rounds = {OURS: [ours] * 3, EAGER: [0.3] * 3} | ({LAST: [0.2] * 3} if name == "vgg11" else {})
    made = Result(name=name, batch=batch, flops=5e9, rounds=rounds, checked=8)
    made.seconds = {engine: times[0] for engine, times in rounds.items()}
    made.parts = {OURS: (ours / 4, ours / 2, ours / 4)}
    made.errors = {OURS: 1e-3, EAGER: 2e-3}
    return replace(made, **more)


def test_a_step_is_measured_and_checked(small: None) -> None:
    measured = training.compared("vgg11", 2, 8, 1, 2, (EAGER, LAST), False)
    assert measured.failures == {}
    assert measured.in_torch == ()
    assert set(measured.errors) == set(measured.parts) == set(measured.seconds) == {OURS, EAGER, LAST}
    assert 0 < measured.errors[OURS] < 1e-5
    assert min(min(parts) for parts in measured.parts.values()) > 0
    assert [len(times) for times in measured.rounds.values()] == [2, 2, 2]


def test_wrong_gradients_are_not_timed(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "errors", lambda *how: ({OURS: 1.0, EAGER: 1e-6}, 2))
    measured = training.compared("vgg11", 2, 8, 1, 1, (EAGER,), False)
    assert measured.failures[OURS].startswith("wrong gradients")
    assert set(measured.seconds) == {EAGER}


def test_the_bound_is_a_factor_times_the_farther_of_torchs_two() -> None:
    theirs = {EAGER: 1e-3, LAST: 2e-3}
    assert steps.wrong({OURS: FACTOR * 2e-3, **theirs}) is None
    why = steps.wrong({OURS: FACTOR * 2e-3 + 1e-6, **theirs})
    assert why == "wrong gradients: error 8.0e-03, bound 8.0e-03"
    assert steps.wrong({OURS: float("nan"), **theirs}) is not None


def test_the_check_takes_a_batch_whose_step_in_float64_fits() -> None:
    assert steps.checked_batch(100, 16, limit=3200) == 16
    assert steps.checked_batch(100, 16, limit=3199) == 8
    assert steps.checked_batch(100, 16, limit=1) == 2
    assert steps.checked_batch(100, 1, limit=1) == 1


def test_floors() -> None:
    assert steps.step_flops(100, 10) == 290
    h, batch = steps.HIDDEN, 4
    step = 2 * 4 * h * 2 * h * batch  # four gates of inputs and states; a multiply-add is two
    scores = 2 * h * steps.CLASSES * batch
    want = 3 * (steps.STEPS * step + scores) - steps.STEPS * step / 2
    assert steps.arithmetic("LSTM", batch, 0) == want
    assert found("vgg11", 0.1).of_floor(1e11) == 0.5


def test_a_networks_arithmetic_is_what_torch_counts_in_a_step() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        steps.trained(steps.made("resnet18"), *steps.example("resnet18", 2, 64), EAGER, 1).step()
    assert steps.arithmetic("resnet18", 2, 64) == counter.get_total_flops()


def test_what_autograd_saves_counts_once() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scores = nn.Linear(8, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = x.exp()  # saved by exp, by the product twice and by the layer
            return self.scores(hidden * hidden) + self.scores(hidden)

    own = steps.Trained(Twice(), torch.randn(4, 8), torch.zeros(4, dtype=torch.int64))
    floats = own.saved_bytes() // 4
    assert 2 * 32 + 40 <= floats <= 2 * 32 + 40 + 2  # hidden, its square, the scores' softmax, a weight


def test_a_network_that_fails_in_its_process_is_one_line() -> None:
    failed = training.apart("perceptron", 2, 8, 1, 1, (EAGER,), False)
    assert failed.failures[OURS].startswith("ValueError: Unknown model perceptron")
    assert failed.seconds == {}


def test_the_layout_of_images_is_no_peer_of_a_recurrent_layer() -> None:
    peers = tuple(steps.PEERS)
    assert steps.engines("vgg11", peers) == [OURS, *peers]
    assert steps.engines("GRU", peers) == [OURS, EAGER, "inductor"]


def test_tables(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = {OURS: {"peak": 5_000_000, "saved": 1_000_000}, EAGER: {"peak": 7_000_000, "saved": 2_000_000}}
    made = {
        ("vgg11", 16): found("vgg11", 0.1, memory=memory),
        ("GRU", 16): found("GRU", 0.6, in_torch=("it is tired",)),
        ("vgg11", 8): found("vgg11", 0.2, 8),
        ("GRU", 8): found("GRU", 0.1, 8, seconds={EAGER: 0.3}, failures={OURS: "wrong gradients"}),
    }
    monkeypatch.setattr(training, "apart", lambda name, batch, *how: made[name, batch])
    rates = iter([1e11, 2e11, 1e11, 1e11, 1e11])
    monkeypatch.setattr(roofline, "fma_rate", lambda threads: next(rates))
    options = ["--networks", "vgg11", "GRU", "--batch", "16", "8", "--memory", "--peers"]
    data, text = written(training.main, *options, EAGER, LAST, code=1)
    assert [r["to_best"] for r in data["results"]][:3] == pytest.approx([2.0, 0.5, 1.0])
    assert [r["best_peer"] for r in data["results"]] == [LAST, EAGER, LAST, EAGER]
    assert data["fma"] == 2e11
    assert {"commit", "machine"} <= data.keys()
    row = "| vgg11 | 100.0 | 300.0 | 200.0 | 25.0 | 50.0 | torch channels_last | 2.00 | 2.00 | 25 % |"
    assert row in text
    assert "| geometric mean |  |  |  |  |  |  | 1.00 | 1.00 |  |" in text
    assert "**Batch 8, 2 thread(s)" in text
    assert "| vgg11 | 16 | 5.0 | 7.0 | 1.0 | 2.0 |" in text
    assert "| vgg11 | 8 | 1.0e-03 | 2.0e-03 | - |" in text
    assert "- GRU: it is tired" in text
    assert "- GRU, batch 8, bslite: wrong gradients" in text
