"""Depth-first against layerwise: the command writes what it measured, and times no wrong answer."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks import memory
from benchmarks.depth_first import __main__ as command
from benchmarks.depth_first import measure
from benchmarks.peers import nets

SMALL = ("--batch", "1", "3", "--threads", "1", "2", "--rounds", "2")


def test_runs(tiny: str, written: Any) -> None:
    found, text = written(command.main, "--nets", tiny, *SMALL, "--no-memory", "--note", "a test")
    assert found["benchmark"] == "depth_first"
    assert found["machine"]["note"] == "a test"
    assert [(r["threads"], r["batch"]) for r in found["results"]] == [(1, 1), (1, 3), (2, 1), (2, 3)]
    for result in found["results"]:
        assert not result["failures"]
        assert result["ratio"] > 0
        for mode in measure.MODES:
            assert len(result["rounds"][mode]) == 2
            assert result["planned"][mode] > 0
    assert text.count("\n| tiny | 3 | ") == 2


def test_writes_after_each_case(tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = command.compare

    def stopped(net: Any, model: Path, batch: int, *rest: Any) -> measure.Result:
        if batch == 3:
            raise KeyboardInterrupt
        return right(net, model, batch, *rest)

    monkeypatch.setattr(command, "compare", stopped)
    with pytest.raises(KeyboardInterrupt):
        command.main(["--nets", tiny, *SMALL, "--no-memory", "--json", str(tmp_path / "found.json")])
    assert len(json.loads((tmp_path / "found.json").read_text())["results"]) == 1


@pytest.mark.parametrize(
    ("fault", "message"),
    [(lambda y: np.nextafter(y, np.float32(9)), "differ in their bits"), (lambda y: 1.01 * y, "error")],
)
def test_a_wrong_answer_is_reported_and_not_timed(
    fault: Any, message: str, tiny: str, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = measure.run
    both = message == "error"  # wrong in the same way: only float64 can tell

    def wrong(spec: Any, x: Any, *, layerwise: bool, threads: int) -> Any:
        answer = right(spec, x, layerwise=layerwise, threads=threads)
        return fault(answer) if both or layerwise else answer

    monkeypatch.setattr(measure, "run", wrong)
    found, text = written(command.main, "--nets", tiny, *SMALL, "--no-memory", code=1)
    for result in found["results"]:
        assert message in result["failures"]["answers"]
        assert result["seconds"] == {}
    assert "| tiny | 3 | - | - | - |" in text
    assert message in text.partition("What failed:")[2]


def test_memory_is_as_planned(tmp_path: Path) -> None:
    """A process that runs an image of 8 million values takes the memory its plan says, and little more."""
    from bslite.spec import GraphBuilder

    graph = GraphBuilder("two layers")
    shape = (1, 8, 500, 500)
    image = graph.input("x", shape, shape)
    graph.build(graph.add("relu", "b", graph.add("sigmoid", "a", image))).save(tmp_path / "m.safetensors")
    from bslite.spec import load

    x = np.zeros(shape, np.float32)
    planned = memory.between_layers(load(tmp_path / "m.safetensors"), x, 1, True)
    try:
        found = measure.memory_of_a_run(tmp_path / "m.safetensors", shape, 1, True)
    except memory.Unmeasurable as e:
        pytest.skip(str(e))
    assert planned > 0
    assert planned + x.nbytes <= found + 1e6  # the output besides
    assert found <= planned + x.nbytes + 8e6


def test_one_image_more_or_less_is_a_wrong_answer(tiny: str, tmp_path: Path) -> None:
    net = nets.make(tiny, 4, 0, tmp_path, checked=2)
    import torch

    answer = net.module(torch.from_numpy(net.x)).detach().numpy()
    assert net.error(answer) < 1e-6
    assert net.error(answer[:1], 1) < 1e-6
    assert net.error(answer[:3], 3) < 1e-6
    assert net.error(answer[:3]) == np.inf
