"""The comparison with other engines: it writes times, errors, memory, and times no wrong answer."""

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from support.tiles import tiles  # type: ignore[import-not-found]

from benchmarks import memory
from benchmarks.peers import __main__ as command
from benchmarks.peers import bfloat16
from benchmarks.peers.arithmetic import AGAIN, NONE, SOME, arithmetic_of
from benchmarks.peers.bert import bert
from benchmarks.peers.columns import COLUMNS, columns
from benchmarks.peers.engines import ENGINES, Engine
from benchmarks.peers.libraries import UNSEEN, name_of
from benchmarks.peers.measure import Result
from benchmarks.peers.nets import Net, distance, import_models
from benchmarks.plot import peers as picture
from bslite import run

__all__ = ["tiles"]
RIVALS = ("bslite", "bslite-layerwise", "torch", "torch-nhwc")
WORDS = ("float32", "ieee", "bfloat16_3x", "bfloat16")
OURS = ("bslite", "bslite-ieee", "bslite-bfloat16_3x", "bslite-bfloat16")


def test_runs(tiny: str, written: Any) -> None:
    options = ("--nets", tiny, "--batch", "1", "2", "--rounds", "2", "--peers", *RIVALS)
    found, text = written(command.main, *options)
    assert found["benchmark"] == "peers"
    assert [r["batch"] for r in found["results"]] == [1, 2]
    for result in found["results"]:
        assert not result["failures"]
        assert set(result["seconds"]) == set(RIVALS)
        assert result["memory"] == {}
        assert set(result["reference_errors"]) == set(RIVALS)
        assert max(result["reference_errors"].values()) < 1e-6
    assert "Memory, batch" not in text
    assert "in bfloat16" not in text
    assert "Geometric means" not in text


def test_networks_of_libraries(written: Any) -> None:
    """By name, each in a process of its own; what is no network is a line, and the next one goes on."""
    import_models()  # skips the test where torchvision is not installed
    names = ("torchvision:no_such", "torchvision:shufflenet_v2_x0_5")
    options = ("--nets", *names, "--rounds", "1", "--peers", "bslite", "torch", "--apart")
    found, text = written(command.main, *options, code=1)
    failed, result = found["results"]
    assert "no_such" in failed["failures"]["bslite"]
    assert not result["failures"]
    assert set(result["seconds"]) == {"bslite", "torch"}
    assert "| torchvision:shufflenet_v2_x0_5 |" in text
    for name in ("tim:x", "timm:", "transformers:x", "resnet"):
        with pytest.raises(SystemExit):
            command.main(["--nets", name])
    assert len(set(UNSEEN)) == len(UNSEEN) > 50
    assert all(name_of(name) == name for name in UNSEEN)


def test_precisions(tiny: str, written: Any) -> None:
    """Each a column of bslite's, beside peers of the same; the error of each; ratios of like with like."""
    rivals = ("bslite", "torch", "torch-mkldnn")
    options = ("--nets", tiny, "--batch", "3", "--rounds", "1", "--peers", *rivals, "--precision", *WORDS)
    found, text = written(command.main, *options)
    (result,) = found["results"]
    assert set(result["failures"]) <= {"torch-mkldnn-bfloat16"}  # of an older torch
    timed = {*OURS, "torch", "torch-bfloat16", "torch-mkldnn-bfloat16"} - set(result["failures"])
    assert set(result["seconds"]) == set(result["reference_errors"]) == timed
    assert result["reference_images"] == 2
    assert (
        result["reference_errors"]["bslite-ieee"] < 1e-6 < 1e-4 < result["reference_errors"]["torch-bfloat16"]
    )
    seconds, ratios = result["seconds"], {word: each["ratio"] for word, each in result["precisions"].items()}
    best = min(s for name, s in seconds.items() if name in ("torch-bfloat16", "torch-mkldnn-bfloat16"))
    assert ratios == {
        **{word: seconds["torch"] / seconds[name] for word, name in zip(WORDS[:3], OURS, strict=False)},
        "bfloat16": best / seconds["bslite-bfloat16"],
    }
    assert result["ratio"] == ratios["float32"]
    assert found["geometric_means"] == {"3": pytest.approx(ratios)}
    assert "| net | bslite | bslite-ieee | bslite-bfloat16_3x | torch | best peer | best / bslite | " in text
    assert "| net | bslite | bslite-bfloat16 | torch-bfloat16 | " in text
    assert "of the first 2 images" in text
    assert "`bfloat16_3x`: held against the peers in float32" in text
    if set(result["arithmetic"].values()) == {NONE}:
        assert "no products of bfloat16 here" in text


def test_a_picture_has_a_panel_for_each_precision(tiny: str, written: Any) -> None:
    pytest.importorskip("matplotlib")
    options = ("--nets", tiny, "--rounds", "1", "--peers", "bslite", "torch", "torch-mkldnn")
    found, _ = written(command.main, *options, "--precision", "float32", "bfloat16")
    drawn = picture.figure(found)
    assert [ax.get_title() for ax in drawn.axes] == ["batch 1", "batch 1, bfloat16"]


def test_what_is_held_against_what() -> None:
    assert columns(("bslite", "torch", "torch-mkldnn"), ["float32"]) == ["bslite", "torch"]
    assert columns(("bslite", "torch"), ["bfloat16_3x"]) == ["bslite-bfloat16_3x", "torch"]
    assert columns(("bslite", "openvino"), ["bfloat16"]) == ["bslite-bfloat16", "openvino-bfloat16"]
    times = {"bslite-bfloat16": 2.0, "bslite-bfloat16_3x": 3.0, "torch": 6.0, "openvino-bfloat16": 1.0}
    result = Result("n", 1, 1, seconds=times)
    assert (result.best_peer, result.ratio) == ("torch", None)
    assert (result.ratio_of("bfloat16"), result.ratio_of("bfloat16_3x")) == (0.5, 2.0)


@pytest.mark.parametrize(("word", "off", "wrong"), [
    ("float32", 1e-4, True), ("ieee", 1e-4, True), ("bfloat16_3x", 2e-3, True), ("bfloat16", 0.2, True),
    ("bfloat16_3x", 5e-4, False),
])  # fmt: skip
def test_the_bound_fits_the_precision(
    word: str, off: float, wrong: bool, tiny: str, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = ENGINES["bslite"].answer
    monkeypatch.setattr(ENGINES["bslite"], "answer", lambda self, y: (1 + off) * right(self, y))
    options = ("--nets", tiny, "--rounds", "1", "--peers", "bslite", "torch", "--precision", word)
    found, _ = written(command.main, *options, code=int(wrong))
    (result,) = found["results"]
    name = "bslite" if word == "float32" else f"bslite-{word}"
    assert ("wrong answer" in result["failures"].get(name, "")) == wrong
    assert (name in result["seconds"]) != wrong


def test_a_reference_that_is_wrong_is_told(tiny: str, written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from bslite import reference

    right = reference.run
    monkeypatch.setattr(reference, "run", lambda *given: [1.001 * right(*given)[0]])
    options = ("--nets", tiny, "--rounds", "1", "--peers", "bslite", "torch")
    found, text = written(command.main, *options, code=1)
    assert "differs from torch" in found["results"][0]["failures"]["reference"]
    assert "tiny, batch 1, reference: ValueError" in text


@pytest.mark.parametrize("name", [e.name for e in bfloat16.BFLOAT16])
def test_peers_in_bfloat16_answer_and_leave_torch_as_it_was(name: str, tmp_path: Path) -> None:
    if name.startswith("openvino"):
        pytest.importorskip("openvino")
        pytest.importorskip("onnx")
    net = _small(tmp_path)
    before = _precisions()
    peer: Engine = COLUMNS[name](net, 1)
    made = peer.answer(peer())
    assert made.dtype == np.float32
    assert distance(made, net.exact) < 0.1
    assert _precisions() == before


def test_tiles_are_told(tiny: str, written: Any, tiles: None) -> None:
    """Also those of a run that has to be done again; where there is no unit, by its emulation."""
    options = ("--nets", tiny, "--rounds", "1", "--peers", "bslite", "torch", "--precision", *WORDS)
    found, text = written(command.main, *options)
    (result,) = found["results"]
    assert result["arithmetic"] == {name: NONE if name == "bslite-ieee" else SOME for name in OURS}
    assert "- `bslite-ieee`: multiply-adds (tiny)\n- `bslite-bfloat16_3x`: bfloat16 (tiny)\n" in text
    errors = [result["reference_errors"][name] for name in OURS]
    assert errors[0] < 1e-6 < errors[2] < 1e-4 < errors[3] < 0.1


def test_a_run_that_is_done_again_is_told(tmp_path: Path, tiles: None) -> None:
    net = _small(tmp_path)
    assert arithmetic_of(net.spec, net.x, 1, False, "bfloat16") == SOME
    net.x[0, 0, 0, 0] = np.inf
    assert arithmetic_of(net.spec, net.x, 1, False, "bfloat16") == AGAIN
    assert arithmetic_of(net.spec, net.x, 1, False, "ieee") == NONE


def test_bert_is_the_same_in_bslite(tmp_path: Path) -> None:
    """A small one; `test_transformers` takes the one that is measured."""
    x = np.random.default_rng(0).standard_normal((2, 16, 32), np.float32)
    net = Net("small_bert", bert(0, layers=2, hidden=32, heads=4, inner=64), x, tmp_path)
    assert distance(net.reference, net.exact) < 1e-9
    assert net.wrong(run(net.spec, x, threads=1)) is None
    for word in WORDS[2:]:
        assert net.error(run(net.spec, x, threads=1, precision=word)) < 0.1


@pytest.mark.networks
@pytest.mark.parametrize("name", ["bert_base", "vit_b_16"])
def test_transformers(name: str, written: Any, quick: None) -> None:
    options = ("--nets", name, "--rounds", "1", "--peers", "bslite", "torch", "--precision", *WORDS[:3])
    found, _ = written(command.main, *options)
    (result,) = found["results"]
    assert not result["failures"]
    assert set(result["seconds"]) == {*OURS[:3], "torch"}
    assert result["flops"] > 2e10


def _small(folder: Path) -> Net:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3)).eval()
    return Net("small", module, np.random.default_rng(0).standard_normal((1, 3, 9, 9), np.float32), folder)


def _precisions() -> list[str]:
    """torch's own settings, which no peer may leave changed."""
    places = [getattr(torch.backends.mkldnn, place, None) for place in bfloat16.PLACES]
    each = [str(getattr(place, "fp32_precision", None)) for place in places]
    return [*each, torch.get_float32_matmul_precision(), str(torch.is_autocast_enabled("cpu"))]


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
