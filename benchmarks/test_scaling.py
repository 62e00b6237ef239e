"""The command on scaling: what it measures, and what it writes."""

from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import scaling
from benchmarks.ring import Bucket, Link


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 5)
    ).train()


def example() -> tuple[Any, Any]:
    torch.manual_seed(1)
    return torch.randn(4, 64), torch.tensor([0, 1, 2, 3])


@pytest.mark.processes
def test_steps_are_measured_and_modelled() -> None:
    link = scaling.fitted(scaling.together(2, scaling.exchanges, 1)[0])
    assert link.per_byte > 0
    found = scaling.measured("small", small, example, 1, [2], link)
    size = 4 * sum(p.numel() for p in small().parameters())
    assert sum(b.size for b in found.alone.buckets) == sum(b.size for b in found.beside.buckets) == size
    assert len(found.alone.buckets) > 1
    assert all(0 < b.ready <= found.alone.seconds for b in found.alone.buckets)
    assert found.here(2) > found.beside.seconds
    assert found.measured[2] > 0


def test_a_link_is_found_from_what_it_takes() -> None:
    link = Link(1e-4, 1e-9)
    given = [(size, link.exchange(size, 2), 0.7) for size in scaling.SIZES]
    found = scaling.fitted(given)
    assert found.latency == pytest.approx(1e-4)
    assert found.per_byte == pytest.approx(1e-9)
    assert found.busy == 0.7


@pytest.mark.processes
def test_a_process_that_fails_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        scaling.together(2, divide)


def divide(rank: int, processes: int) -> float:
    """Fails in one process, while the other waits for nothing."""
    return 1 / rank


def test_what_is_modelled_says_so(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    link = Link(1e-4, 1e-9, 0.5)
    steps = scaling.Steps(2.0, [Bucket(1.0, 10**8), Bucket(2.0, 10**8)])
    found = scaling.Result("vgg11", steps, steps, link, 2, {2: 2.0, 4: 5.0})
    monkeypatch.setattr(scaling, "together", lambda *given: [[(4, 1e-4, 0.5), (1000, 2e-4, 0.5)]])
    monkeypatch.setattr(scaling, "measured", lambda *given: found)
    data, text = written(scaling.main, "--networks", "vgg11")
    (row,) = data["results"]
    assert row["error"]["2"] == pytest.approx(found.here(2) / 2 - 1)
    assert f"| vgg11 | 4 | 5000.0 | {1e3 * found.here(4):.1f} |" in text
    assert "| network | link | 2 (modelled) |" in text
    assert "Modelled, not measured" in text
