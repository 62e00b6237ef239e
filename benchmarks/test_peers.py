"""The comparison with other engines: it writes what it measured, memory too, and times no wrong answer."""

import mmap
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks import memory
from benchmarks.peers import __main__ as command
from benchmarks.peers.engines import ENGINES

RIVALS = ("bslite", "bslite-layerwise", "torch", "torch-nhwc")


def test_runs(tiny: str, written: Any) -> None:
    options = ("--nets", tiny, "--batch", "1", "2", "--rounds", "2", "--peers", *RIVALS)
    found, text = written(command.main, *options)
    assert found["benchmark"] == "peers"
    assert [r["batch"] for r in found["results"]] == [1, 2]
    for result in found["results"]:
        assert not result["failures"]
        assert set(result["seconds"]) == set(RIVALS)
        assert result["memory"] == {}
    assert "Memory, batch" not in text


def test_a_wrong_answer_is_reported_and_not_timed(
    tiny: str, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = ENGINES["bslite"].answer
    monkeypatch.setattr(ENGINES["bslite-layerwise"], "answer", lambda self, y: 1.01 * right(self, y))
    options = ("--nets", tiny, "--rounds", "1", "--peers", "bslite", "bslite-layerwise")
    found, text = written(command.main, *options)
    (result,) = found["results"]
    assert "wrong answer" in result["failures"]["bslite-layerwise"]
    assert set(result["seconds"]) == {"bslite"}
    assert "tiny, batch 1, bslite-layerwise: wrong answer" in text
    monkeypatch.setattr(ENGINES["bslite"], "answer", lambda self, y: 1.01 * right(self, y))
    assert command.main([*options]) == 1


def test_memory(tiny: str, written: Any) -> None:
    pytest.importorskip("onnx")
    options = ("--nets", tiny, "--rounds", "1", "--threads", "1", "--peers", "bslite", "--memory")
    found, text = written(command.main, *options)
    (result,) = found["results"]
    if "bslite's memory" in result["failures"]:
        pytest.skip(result["failures"]["bslite's memory"])
    assert set(result["memory"]["bslite"]) == {"kept", "peak", "making"}
    assert "| net | bslite |\n| --- | ---: |\n| tiny | " in text


def test_a_failure_in_the_other_process_is_told() -> None:
    case = {"model": "m", "warmup": "w", "engine": "no such engine", "threads": 1}
    with pytest.raises(memory.Unmeasurable, match="KeyError: 'no such engine'"):
        memory.apart("benchmarks.peers.memory", case)


def test_growth_sees_a_peak_that_has_passed() -> None:
    try:
        growth = memory.Growth()
    except (memory.Unmeasurable, TypeError) as e:
        pytest.skip(str(e))
    with mmap.mmap(-1, 64 << 20) as pages:  # malloc may keep what is freed; this is gone when it is closed
        for page in range(0, len(pages), mmap.PAGESIZE):
            pages[page] = 1
    assert growth.peak() > 60e6
    assert growth.now() < 10e6
    growth.restart_peak()
    assert growth.peak() < 10e6
