"""The benchmark of pool + batch norm + ReLU stacks runs, compares answers, and finds wrong ones."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks import stacks
from benchmarks.peers.engines import ENGINES
from bslite.verification import FACTOR, TINY

pytestmark = pytest.mark.usefixtures("quick")

SMALL = (
    "--image", "5", "9", "7", "--rounds", "2",
    "--batch", "1", "3", "--threads", "1", "2", "--depth", "1", "3",
)  # fmt: skip


def test_runs(written: Any) -> None:
    rivals = ("bslite", "bslite-layerwise", "torch-nhwc")
    found, text = written(stacks.main, *SMALL, "--peers", *rivals)
    assert len(found["results"]) == 8
    for result in found["results"]:
        assert set(result["seconds"]) == set(rivals)
        assert all(len(rounds) == 2 for rounds in result["rounds"].values())
        assert all(bytes_ > 0 for bytes_ in result["memory"].values())
    assert text.count("\n| 3 | 1 |") == 2


def test_a_wrong_answer_is_reported_and_not_timed(monkeypatch: pytest.MonkeyPatch, written: Any) -> None:
    ours = ["bslite", "bslite-layerwise"]
    stack = stacks.Stack(2, (3, 4, 6, 6))
    right = ENGINES["bslite"].answer
    monkeypatch.setattr(
        ENGINES["bslite-layerwise"], "answer", lambda self, y: np.nextafter(right(self, y), 9e9)
    )
    found = stacks.compare(stack, 1, [*ours, "torch-nhwc"], 1)
    assert all("bits" in found.failures[name] for name in ours)
    assert set(found.seconds) == {"torch-nhwc"}
    monkeypatch.setattr(ENGINES["bslite"], "answer", lambda self, y: right(self, y) * 1.01)
    _, text = written(stacks.main, *SMALL, "--peers", "bslite", "torch-nhwc", code=1)
    assert "2 thread(s), depth 3, batch 3, bslite: wrong answer: error" in text


def test_the_stack_is_alive() -> None:
    """Values neither vanish nor explode over 40 blocks."""
    stack = stacks.Stack(40, (1, 8, 12, 12))
    assert np.isfinite(stack.exact).all()
    assert (stack.exact > 0).mean() > 0.5
    assert stack.exact.max() < 1e4
    assert TINY < stack.bound < FACTOR * 1e-4
