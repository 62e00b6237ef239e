"""The command on training: what it measures, and what it writes."""

from typing import Any

import pytest
from torch import nn

from benchmarks import training


def test_a_step_is_measured_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 10)
    monkeypatch.setattr(training, "made", lambda name: nn.Sequential(*layers).train())
    found = training.compared("vgg11", batch=2, side=8, threads=1, rounds=1)
    assert found.right
    assert found.error > 0
    assert found.in_torch == ()
    assert min(*found.ours[:2], *found.theirs[:2], found.first) > 0


def test_wrong_gradients_end_with_an_error(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        "vgg11": training.Result("vgg11", (0.1, 0.2, 0.1), (0.2, 0.5, 0.1), 2.0, 1e-6, 3.0),
        "GRU": training.Result("GRU", (0.1, 0.2, 0.1), (0.05, 0.1, 0.05), 0.5, 0.1, 3.0, ("it is tired",)),
    }
    monkeypatch.setattr(training, "compared", lambda name, *how: made[name])
    data, text = written(training.main, "--networks", "vgg11", "GRU", code=1)
    assert [r["ratio"] for r in data["results"]] == [2.0, 0.5]
    assert "| vgg11 | 400.0 | 100.0 | 200.0 | 800.0 | 200.0 | 500.0 | 2.00 | 1e-06 |" in text
    assert "Geometric mean of the ratios 1.00" in text
    assert "- GRU: it is tired" in text
