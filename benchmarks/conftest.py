"""A network small enough to test the commands with, and no time spent on what they take long over."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import roofline
from bslite.cli import timing
from bslite.engines.cpu import unit

LIMITS = roofline.Roofline(1, {"numpy": 1e11}, 2e10, 1e10, 2e11)


@pytest.fixture(scope="session", autouse=True)
def _no_unit() -> Iterator[None]:
    """Plans are the same on machines with a unit for tiles and without: tests of tiles ask for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(unit.OFF, "0")
        yield


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


@pytest.fixture
def written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str]]:
    """Run a command: ``written(main, *options, code=0)`` gives the JSON and the tables that it wrote."""

    def run(main: Callable[[list[str]], int], *options: str, code: int = 0) -> tuple[Any, str]:
        json_file, md = tmp_path / "found.json", tmp_path / "found.md"
        capsys.readouterr()
        assert main([*options, "--json", str(json_file), "--md", str(md)]) == code
        text = md.read_text()
        assert text == capsys.readouterr().out[:-1]
        assert sorted(tmp_path.glob("found.*")) == [json_file, md, *tmp_path.glob("found.svg")]  # no .part
        return json.loads(json_file.read_text()), text

    return run


def _module(name: str, seed: int) -> Any:
    import torch

    assert name == "tiny"
    torch.manual_seed(seed)
    layers = [torch.nn.Conv2d(3, 5, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(5, 4, 3, stride=2)]
    return torch.nn.Sequential(*layers).eval()
