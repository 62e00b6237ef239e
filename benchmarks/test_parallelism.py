"""Threads, streams and batch: the command writes what it found, and goes on where it stopped."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.parallelism import __main__ as command
from benchmarks.parallelism import measure as module
from benchmarks.parallelism.nets import bert, two_towers
from benchmarks.plot import draw
from bslite.api import run
from bslite.parallelism import api, replay
from bslite.parallelism import measure as measuring
from bslite.parallelism.host import Host
from bslite.parallelism.width import width_of
from bslite.parallelism.work import inputs_of
from bslite.verification import verify


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two narrow towers, short blocks, two cores that are not measured."""
    monkeypatch.setattr(command, "NETS", {"towers": lambda seed: two_towers(seed, 2, 32)})
    monkeypatch.setattr(command, "available_cores", lambda: 2)
    monkeypatch.setattr(command, "host_for", lambda cores, here: Host(cores, 1 << 25, 1e10, 2e10, 1.0, True))
    monkeypatch.setattr(measuring, "LEAST", 2)
    monkeypatch.setattr(module, "blocks", partial(module.blocks, seconds=0.005, rounds=1))  # the tuner's own
    monkeypatch.setattr(replay, "_compiled", lambda: replay._replay)


QUICK = ("--batch", "1", "2", "--seconds", "0.005", "--rounds", "1")


def test_runs_and_goes_on(small: None, written: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, text = written(command.main, "--parts", "measured", *QUICK)
    assert [(r["kind"], r["target"], r["cores"]) for r in found["results"]] == [
        ("measured", "latency", 2),
        ("measured", "throughput", 2),
    ]
    for r in found["results"]:
        assert {"bslite", "price alone", "width", "intel", "tensorflow", "openvino"} == set(r["chosen"])
        assert set(r["chosen"].values()) <= set(r["settings"])
        made = module.Result(**r)
        assert made.over_best("bslite") >= 1.0
    assert {"2x2x1", "1x1x2", "2x1x1", "1x2x2"} <= set(found["results"][1]["settings"])
    assert len(found["checked"]) == 6  # three ways to divide two cores, two batches
    assert "**measured, 2 cores, throughput**" in text
    assert "The simulator, from one-thread times, and what was measured" in text

    monkeypatch.setattr(command, "measured_here", None)  # it is not measured again
    both, text = written(command.main, "--parts", "measured", "simulated", "--cores", "4", *QUICK)
    assert both["results"][:2] == found["results"]
    assert [(r["kind"], r["cores"]) for r in both["results"][2:]] == [("simulated", 4)] * 2
    assert both["checked"] == found["checked"]
    draw(both, tmp_path / "drawn.svg")
    assert (tmp_path / "drawn.svg").stat().st_size > 1000


def test_other_bits_fail_the_run(small: None, written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def differ(*args: Any, **kwargs: Any) -> None:
        raise measuring.DifferentAnswers("planted")

    monkeypatch.setattr(command, "measured_here", differ)
    found, text = written(command.main, "--parts", "measured", *QUICK, code=1)
    assert found["results"][0]["failures"] == {"answers": "planted"}
    assert "planted" in text


def test_bert_has_its_products_apart() -> None:
    spec = bert(0, layers=1, hidden=24, heads=3)
    width = width_of(spec)
    # Q, K, V, scores, mixed, out, up, down; in a chain one of Q and K, and V beside the scores.
    assert (width.heavy, width.chain) == (8, 6)
    found, inputs = inputs_of(spec, 2)
    assert run(found, inputs).shape == (2, 128, 24)
    assert verify(found, inputs).passed


def test_two_towers_are_two_wide() -> None:
    assert width_of(two_towers(0, 3, 16)).average == 2.0


def test_a_simulated_host_is_no_machine_at_hand() -> None:
    assert not api.host_for(48, 2).here
    assert json.dumps(api.host_for(48, 2).as_dict())
