"""A network small enough to test the commands with, and no time spent on what they take long over."""

from dataclasses import replace
from typing import Any

import pytest

from benchmarks import roofline
from bslite.cli import timing

LIMITS = roofline.Roofline(1, {"numpy": 1e11}, 2e10, 1e10, 2e11)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses, and a roofline that is not measured."""
    monkeypatch.setattr(timing, "SETTLE", 0.0)
    monkeypatch.setattr(roofline, "measure", lambda threads: replace(LIMITS, threads=threads))


@pytest.fixture
def tiny(quick: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a network of two convolutions, which the commands take as they do torchvision's."""
    import importlib

    from benchmarks.peers import nets

    monkeypatch.setitem(nets.SIDES, "tiny", 12)
    monkeypatch.setattr(nets, "module", _module)
    for command in ("peers", "depth_first"):
        main = importlib.import_module(f"benchmarks.{command}.__main__")
        monkeypatch.setattr(main, "NETS", ("tiny",))
    return "tiny"


def _module(name: str, seed: int) -> Any:
    import torch

    assert name == "tiny"
    torch.manual_seed(seed)
    layers = [torch.nn.Conv2d(3, 5, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(5, 4, 3, stride=2)]
    return torch.nn.Sequential(*layers).eval()
