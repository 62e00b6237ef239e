"""The command line on ONNX files."""

from pathlib import Path
from typing import Any

import pytest
from support.onnx_models import helper, image_net, model, tokens, value

pytest.importorskip("typer")

from bslite import cli
from bslite.cli import timing

COMMANDS = ("run", "verify", "bench", "explain", "warmup")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SETTLE", 0.0)


def call(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[Any, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return stop.value.code, " ".join((out + err).split())


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_take_an_onnx_file(capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(image_net().SerializeToString())
    more = ("--no-torch",) if command == "verify" else ()
    code, out = call(capsys, command, path, "--batch", 2, *more)
    assert code == 0, out


def test_integer_inputs_are_indices(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "tokens.ONNX"
    path.write_bytes(tokens().SerializeToString())
    code, out = call(capsys, "run", path, "--batch", 3)
    assert code == 0, out
    assert "[3, 6, 8] float32" in out


def test_shape_is_the_example_of_open_sizes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "open.onnx"
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    path.write_bytes(model(nodes, [value("x", ["n", "h"])], ["y"]).SerializeToString())
    code, out = call(capsys, "run", path)
    assert code == 2
    assert "leaves the size h at axis 1 open" in out
    code, out = call(capsys, "run", path, "--shape", "2,7")
    assert code == 0, out
    assert "[2, 7] float32" in out


def test_a_damaged_file_is_a_message(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"no model")
    code, out = call(capsys, "run", path)
    assert code == 2
    assert "not an ONNX model" in out
