"""The GPU's benchmark without one: it rehearses on the CPU, finds wrong answers, says that there is none."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from benchmarks.gpu import __main__ as command
from benchmarks.gpu.device import DeviceLost, Host
from benchmarks.gpu.engines import ENGINES, Engine
from benchmarks.gpu.limits import Limits
from benchmarks.gpu.measure import Result
from benchmarks.gpu.report import goals

PARTS = ("--parts", "networks", "stacks")


@pytest.fixture
def rehearse(tiny: str, monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    """Options for a rehearsal that takes a second."""
    monkeypatch.setitem(command.TINY, "nets", [tiny])
    monkeypatch.setattr(command, "IMAGE", (3, 6, 5))
    monkeypatch.setattr(command, "measure", lambda device: Limits(1e11, 1e10))
    return ("--rehearse", *PARTS)


def test_rehearsal(rehearse: Sequence[str], written: Any) -> None:
    found, text = written(command.main, *rehearse)
    assert [(r["part"], r["name"]) for r in found["results"]] == [
        ("networks", "tiny"), ("stacks", "stack of 1"), ("stacks", "stack of 2")
    ]  # fmt: skip
    for result in found["results"]:
        assert set(result["seconds"]) == {"bslite", "bslite-layerwise", "torch", "torch-nhwc"}
        assert result["same_bits"] is True
        graphs = ("bslite-graph", "torch-graph")
        assert result["failures"] == dict.fromkeys(graphs, "CUDA graphs need a GPU")
    assert "A rehearsal on the CPU" in text


def test_it_draws(rehearse: Sequence[str], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert command.main([*rehearse, "--plot", str(tmp_path / "gpu.png")]) == 0
    assert (tmp_path / "gpu.png").stat().st_size > 10_000


def test_a_wrong_answer_is_reported_and_not_timed(
    rehearse: Sequence[str], written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = ENGINES["bslite"].answer
    monkeypatch.setattr(ENGINES["bslite"], "answer", lambda self, y: 1.01 * right(self, y))
    for result in written(command.main, *rehearse, code=1)[0]["results"]:
        assert "wrong answer" in result["failures"]["bslite"]
        assert "bslite" not in result["seconds"]


def test_a_rival_that_fails_while_it_is_timed(
    rehearse: Sequence[str], written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is a line of the report; the others are timed."""
    right, calls = ENGINES["torch"].__call__, []

    def call(self: Engine) -> object:
        calls.append(self)
        if calls.count(self) > 2:
            raise RuntimeError("CUDA out of memory")
        return right(self)

    monkeypatch.setattr(ENGINES["torch"], "__call__", call)
    for result in written(command.main, *rehearse)[0]["results"]:
        assert result["failures"]["torch"] == "RuntimeError: CUDA out of memory"
        assert "torch" not in result["seconds"]
        assert {"bslite", "bslite-layerwise"} <= set(result["seconds"])


def test_bslite_that_is_not_installed(
    rehearse: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkout has no `bslite.reference`; the rivals would be measured all the same, for minutes."""
    monkeypatch.setitem(sys.modules, "bslite.reference", None)
    assert command.main(list(rehearse)) == 2
    assert "-m pip install -e ." in capsys.readouterr().err


def test_a_device_that_is_lost(
    rehearse: Sequence[str], written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing more is tried; what was measured is written, and the report says where it ended."""

    def lost(self: Host) -> None:
        raise DeviceLost("an illegal memory access")

    monkeypatch.setattr(Host, "check", lost)
    _, text = written(command.main, *rehearse, code=1)
    assert "networks: tiny, batch 1: the device answers no more (an illegal memory" in text
    assert "stack of" not in text


def test_no_time_left(rehearse: Sequence[str], written: Any) -> None:
    """Each part says from where on it was not measured."""
    _, text = written(command.main, *rehearse, "--minutes", "0")
    assert "Networks: from tiny, batch 1 on, for want of time" in text
    assert "norm and ReLU: from stack of 1, batch 1 on, for want" in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 2
    assert capsys.readouterr().err.startswith("no GPU to measure: torch ")


def test_goals() -> None:
    def result(part: str, ours: float, theirs: dict[str, float]) -> Result:
        rounds = {"bslite": [ours], **{name: [s] for name, s in theirs.items()}}
        seconds = {name: r[0] for name, r in rounds.items()}
        return Result(part, "case", 1, bytes=8e9, rounds=rounds, seconds=seconds)

    met = [result("networks", 1.0, {"torch": 1.4}), result("stacks", 1.0, {"torch": 3.0})]
    lines = goals(met, Limits(1e12, 1e10))
    assert any("mean 1.40" in line and line.endswith(": met.") for line in lines)
    assert any("80% to 80%" in line and line.endswith(": met.") for line in lines)
    missed = [result("networks", 1.0, {"torch": 1.3}), result("autotuned", 1.0, {"max-autotune": 0.9})]
    lines = goals(missed, Limits(1e12, 1e10))
    assert sum(line.endswith("NOT met.") for line in lines) == 2
    assert any("not measured against torch-graph" in line for line in lines)
