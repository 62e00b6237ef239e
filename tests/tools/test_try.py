"""``bslite try``: one screen on one model, whatever becomes of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.onnx_models import FLOAT, helper, image_net, model, noise, one, value

pytest.importorskip("typer")

import bslite
from bslite import cli
from bslite.cli import timing
from bslite.cli.trial import bits, peers, trying
from bslite.engines import cpu

Screen = Callable[..., str]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SETTLE", 0.0)
    monkeypatch.setattr(trying, "SECONDS", 0.01)


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str]) -> Screen:
    """``screen(*arguments, code=0)``: the screen as it is printed, which has to be one."""

    def show(*arguments: Any, code: int = 0) -> str:
        with pytest.raises(SystemExit) as stop:
            cli.main(["try", *map(str, arguments)])
        out, err = capsys.readouterr()
        assert stop.value.code == code, err
        assert len(out.splitlines()) <= 24
        assert max(map(len, out.splitlines())) <= 80
        return " ".join(out.split())

    return show


def saved(folder: Path, proto: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a file in the current folder, short as people's are."""
    monkeypatch.chdir(folder)
    Path("net.onnx").write_bytes(proto.SerializeToString())
    return "net.onnx"


def dynamic(rows: int | str, scores: int = 5) -> Any:
    """Rows of scores from rows of sixteen numbers."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])]
    return model(nodes, [value("x", [rows, 16])], [value("y", [rows, scores])], {"w": noise(16, scores)})


def test_a_right_model(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    figures = tmp_path / "figures.json"
    out = screen(saved(tmp_path, image_net(), monkeypatch), "--json", figures)
    assert "net.onnx: right" in out
    assert "takes x: float32[batch, 3, 8, 8]; tried with [1, 3, 8, 8]" in out
    assert "gives z: float32[batch, 5]" in out
    assert "in one piece" in out
    assert "(4 times torch's); all 7 layers are within theirs" in out
    assert "a row has the same bits alone and in a batch of 3" in out
    assert 'import bslite; y = bslite.compile("net.onnx")(x)' in out
    assert "bslite explain net.onnx" in out
    found = json.loads(figures.read_text())
    assert found["loads"]
    assert found["passed"]
    assert 0 < found["error"] <= found["bound"] < 1e-5
    assert found["bits"]["same"]
    assert found["bits"]["batch"] == bits.SAME
    assert set(found["bits"]["on_threads"]) >= {"1", "2"}
    assert found["memory"]["weights"] > 0
    assert set(found["ratios"]) <= set(peers.KNOWN)
    assert peers.TORCH in found["ratios"]


def test_without_peers(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "installed", list)
    out = screen(saved(tmp_path, dynamic("n"), monkeypatch))
    assert "net.onnx: right takes" in out
    assert "(4 times float32's)" in out
    assert "pip install onnxruntime openvino torch" in out
    assert "no peer was asked for" in screen("net.onnx", "--no-peers")


def test_a_slower_bslite_is_said(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "installed", lambda: [peers.ONNXRUNTIME, peers.OPENVINO])
    name = saved(tmp_path, dynamic("n"), monkeypatch)
    fast: Any = lambda path, net, inputs, threads: lambda: [np.zeros((1, 5), np.float32)]  # noqa: E731
    monkeypatch.setattr(peers, "onnxruntime_call", fast)

    def refuse(*_: Any) -> Any:
        raise RuntimeError("no such thing\nat all")

    monkeypatch.setattr(peers, "openvino_call", refuse)
    monkeypatch.setattr(
        trying, "interleaved", lambda calls, *_, **__: {n: [2.0 if n == "bslite" else 1.0] for n in calls}
    )
    out = screen(name)
    assert "onnxruntime 1.00 s bslite takes 2.00 times as long; ANOTHER answer" in out
    assert "openvino - no such thing" in out
    assert "at all" not in out
    assert "bslite calibrate" in out
    assert "net.onnx: right takes" in out  # a wrong answer is no rival
    monkeypatch.setattr(peers, "ANOTHER", 2.0)
    monkeypatch.setattr("bslite.cli.trial.screen.ANOTHER", 2.0)
    assert "right, but takes 2.00 times as long as onnxruntime" in screen(name)


def test_operators_that_bslite_lacks(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        helper.make_node("Odd", ["x"], ["a"], domain="strange", name="first"),
        helper.make_node("Odder", ["a"], ["b"], domain="strange", name="second"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    proto = model(nodes, [value("x", [2, 3])], [value("y", [2, 3])], domains={"strange": 1})
    figures = tmp_path / "figures.json"
    out = screen(saved(tmp_path, proto, monkeypatch), "--json", figures, code=2)
    assert "net.onnx: does NOT load" in out
    assert "Odd" in out
    assert "Odder" in out
    assert """prepare("net.onnx", fallback='warn').run([x])""" in out
    found = json.loads(figures.read_text())
    assert not found["loads"]
    assert any("Odder" in line for line in found["lacks"])


def test_no_advice_on_operators_where_none_is_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", [2])], [value("y", [2])])
    proto.opset_import[0].version = 999
    for arguments, said in (
        ([saved(tmp_path, proto, monkeypatch)], "opset 999"),
        (["--arch", "resnet49"], "unknown architecture 'resnet49'"),
    ):
        with pytest.raises(SystemExit) as stop:
            cli.main(["try", *arguments])
        out, err = capsys.readouterr()
        assert (stop.value.code, out) == (2, "")
        assert said in err


def test_rows_that_see_each_other(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["x", "m"], ["y"]),
    ]
    proto = model(nodes, [value("x", ["n", 4])], [value("y", ["n", 4])])
    out = screen(saved(tmp_path, proto, monkeypatch))
    assert "net.onnx: right" in out
    assert "rows see each other: 'y' of a row depends on the rows beside it" in out


@pytest.mark.parametrize(
    ("rows", "told"), [(1, "fixes its batch to one row"), (3, "no axis of rows is open")]
)
def test_a_fixed_batch(
    screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, told: str
) -> None:
    out = screen(saved(tmp_path, dynamic(rows), monkeypatch), "--no-peers")
    assert "net.onnx: right" in out
    assert told in out


def test_several_rows_that_are_given(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = screen(saved(tmp_path, dynamic("n"), monkeypatch), "--no-peers", "--batch", 2)
    assert "a row has the same bits alone and in a batch of 2" in out


def test_a_model_in_several_pieces(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    then = helper.make_graph([helper.make_node("Relu", ["x"], ["t"])], "then", [], [value("t", None)])
    other = helper.make_graph([helper.make_node("Sigmoid", ["x"], ["e"])], "else", [], [value("e", None)])
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["r"], then_branch=then, else_branch=other, name="if"),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
    ]
    stored = {"zero": np.float32(0), "w": noise(4, 4)}
    proto = model(nodes, [value("x", ["n", 4])], [value("y", ["n", 4], FLOAT)], stored)
    out = screen(saved(tmp_path, proto, monkeypatch))
    assert "net.onnx: right" in out
    assert "of them outside the engine" in out


def test_errors_out_of_bound(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = saved(tmp_path, dynamic("n"), monkeypatch)
    honest = cpu.trace
    monkeypatch.setattr(
        cpu, "trace", lambda *a, **k: ((n, made * np.float32(1.001)) for n, made in honest(*a, **k))
    )
    out = screen(name, "--no-peers", code=1)
    assert "net.onnx: WRONG, error out of bound" in out
    assert "bslite verify net.onnx" in out


def test_bits_that_differ(screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = saved(tmp_path, dynamic("n"), monkeypatch)
    monkeypatch.setattr(bits, "mixed", lambda made, alone, same: "y" if same is bits.identical else None)
    out = screen(name, "--no-peers", code=1)
    assert "WRONG, bits differ" in out
    assert "'y' of a row has OTHER BITS in a batch of 3" in out
    honest = bits.run
    monkeypatch.setattr(
        bits, "run", lambda *a, threads: honest(*a, threads=threads) + np.float32(threads == 2)
    )
    out = screen(name, "--no-peers", code=1)
    assert "DIFFERENT on 2 threads" in out


def test_a_named_architecture(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    out = screen("--arch", "squeezenet1_1", "--shape", "1,3,64,64", "--no-peers")
    assert "squeezenet1_1, random weights of seed 0: right" in out
    assert 'import bslite; s = bslite.from_state_dict("squeezenet1_1", "w.pth")' in out
    assert "bslite explain --arch squeezenet1_1" in out


def test_a_file_of_bslite_with_two_inputs(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[1] / "spec" / "files")
    out = screen("format-2.safetensors", "--no-peers")
    assert "format-2.safetensors: right" in out
    assert "takes x: float32[N, 3, H, W], ids: int64[N, 2]; tried with [1, 3, 6, 6], [1, 2]" in out
    assert 'y = bslite.compile("format-2.safetensors")(x, ids)' in out


def test_a_file_by_torch_for_those_who_read_onnx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    from support.graphs import network

    net, x = network("squeezenet1_1", 10), noise(1, 3, 64, 64)
    names, seen = [peers.TORCH, peers.ONNXRUNTIME], torch.get_num_threads()
    outputs = [bslite.run(net, x)]
    made = list(peers.prepared(names, None, (net, [x]), net, [x], outputs, seen, tmp_path))
    assert [(p.name, p.why) for p in made] == [(name, "") for name in names]
    assert all(p.apart is not None and p.apart < 1e-5 for p in made)


def test_usage(call: Any, tmp_path: Path) -> None:
    assert "Usage: bslite try" in call("try", "--help")
    assert "either a MODEL file or --arch" in call("try", code=2)
    assert "cannot read" in call("try", tmp_path / "none.onnx", code=2)
    proto = one("Relu", "x", of=[value("x", ["n", 4])])
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    assert "not a list of sizes" in call("try", tmp_path / "net.onnx", "--shape", "z=1,4", code=2)
