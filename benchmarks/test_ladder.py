"""Every step of the kernel ladder computes the convolution; its table can be made; faults are found."""

import json
from pathlib import Path
from typing import Any

import pytest

import benchmarks.ladder.__main__ as ladder
from benchmarks.ladder import STEPS
from benchmarks.ladder.problem import NR, Problem
from bslite.cli import timing

DOCUMENT = Path(__file__).parents[1] / "docs" / "kernels.md"


def name(step: Any) -> str:
    return str(step.__name__).rpartition(".")[2]


@pytest.mark.parametrize("step", STEPS, ids=name)
@pytest.mark.parametrize(("side", "channels", "panels"), [(3, 4, 1), (14, 8, 2), (17, 12, 3)])
def test_step_is_right(step: Any, side: int, channels: int, panels: int) -> None:
    problem = Problem(side, channels, panels * NR)
    for threads in (1, 2):
        call = step.prepare(problem, threads)
        first = call().copy()
        assert problem.error(first) <= problem.bound
        assert (call() == first).all()


def test_a_fault_would_be_found() -> None:
    problem = Problem(5, 4, NR)
    answer = STEPS[0].prepare(problem, 1)()
    assert problem.error(answer) <= problem.bound
    answer[3, 1] += 1e-3
    assert problem.error(answer) > problem.bound


def test_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "SETTLE", 0.0)
    monkeypatch.setattr(ladder, "TURN", 1e-5)
    monkeypatch.setattr(ladder, "MOST_COPIES", 3)
    small = ("--side", "6", "--channels", "4", "--filters", str(NR), "--rounds", "2", "--threads", "2")
    assert ladder.main([*small, "--json", str(tmp_path / "ladder.json")]) == 0
    table = capsys.readouterr().out
    found = json.loads((tmp_path / "ladder.json").read_text())["steps"]
    assert [f["step"] for f in found] == [name(step) for step in STEPS]
    assert all(f["share"] > 0 and f["flops"] > 0 for f in found)
    assert found[-1]["threads"] == 2
    assert all(f"| {n} | " in table for n in range(1, len(STEPS) + 1))


def test_each_step_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    for step in STEPS:
        assert f"benchmarks/ladder/{name(step)}.py" in text
        assert ladder.idea(step) in text
