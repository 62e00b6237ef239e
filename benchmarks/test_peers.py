"""The comparison with other engines: it writes what it measured, memory too, and times no wrong answer."""

import json
import mmap
from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks import memory
from benchmarks.peers import __main__ as command
from benchmarks.peers.engines import ENGINES

RIVALS = ("bslite", "bslite-layerwise", "torch", "torch-nhwc")


def test_runs(tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_file, md = tmp_path / "found.json", tmp_path / "found.md"
    files = ("--json", str(json_file), "--md", str(md))
    options = ("--nets", tiny, "--batch", "1", "2", "--rounds", "2", "--peers", *RIVALS)
    assert command.main([*options, *files]) == 0
    assert md.read_text() == capsys.readouterr().out[:-1]
    found = json.loads(json_file.read_text())
    assert found["benchmark"] == "peers"
    assert [r["batch"] for r in found["results"]] == [1, 2]
    for result in found["results"]:
        assert not result["failures"]
        assert set(result["seconds"]) == set(RIVALS)
        assert result["memory"] == {}
    assert "Memory, batch" not in md.read_text()


def test_a_wrong_answer_is_reported_and_not_timed(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = ENGINES["bslite"].answer
    monkeypatch.setattr(ENGINES["bslite-layerwise"], "answer", lambda self, y: 1.01 * right(self, y))
    json_file, md = tmp_path / "found.json", tmp_path / "found.md"
    options = ("--nets", tiny, "--rounds", "1", "--peers", "bslite", "bslite-layerwise")
    assert command.main([*options, "--json", str(json_file), "--md", str(md)]) == 0
    (result,) = json.loads(json_file.read_text())["results"]
    assert "wrong answer" in result["failures"]["bslite-layerwise"]
    assert set(result["seconds"]) == {"bslite"}
    assert "tiny, batch 1, bslite-layerwise: wrong answer" in md.read_text()
    monkeypatch.setattr(ENGINES["bslite"], "answer", lambda self, y: 1.01 * right(self, y))
    assert command.main([*options]) == 1


def test_memory(tiny: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    json_file, md = tmp_path / "found.json", tmp_path / "found.md"
    options = ("--nets", tiny, "--rounds", "1", "--threads", "1", "--peers", "bslite", "--memory")
    assert command.main([*options, "--json", str(json_file), "--md", str(md)]) == 0
    (result,) = json.loads(json_file.read_text())["results"]
    if "bslite's memory" in result["failures"]:
        pytest.skip(result["failures"]["bslite's memory"])
    assert set(result["memory"]["bslite"]) == {"kept", "peak", "making"}
    assert "| net | bslite |\n| --- | ---: |\n| tiny | " in md.read_text()


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
