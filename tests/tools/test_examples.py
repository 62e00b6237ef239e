"""The examples, as a newcomer runs them."""

import importlib.util
import warnings
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch

import bslite
from bslite.dropin.training import trainer

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("epochs", "least"),
    [(1, 0.5), pytest.param(15, 0.97, marks=pytest.mark.networks)],
    ids=["short", "whole"],
)
def test_train_digits(
    epochs: int,
    least: float,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)  # other tests keep theirs
    whole = trainer.Trainer._trained
    monkeypatch.setattr(trainer.Trainer, "_trained", lambda *given: made.append(whole(*given)) or made[-1])
    monkeypatch.setattr(bslite, "optimize", partial(bslite.optimize, tune=False))  # no test asks a clock
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is left to torch
        found = example("train_digits").main(
            ["--epochs", str(epochs), "--threads", "1", "--plot", str(tmp_path / "plot.png")]
        )
    assert found >= least
    assert asked == [1]
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    said = capsys.readouterr().out
    assert f"{100 * found:.1f} % of 360 test images are right" in said
    assert "ms in bslite" in said
    assert [len(trained.parts) for trained in made] == [1]  # one part, for one size of batch, held all of it


def test_classify_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = example("classify_picture").main([])
    assert "wrote squeezenet1_1.safetensors with random weights" in capsys.readouterr().out
    assert len(found) == 5
    assert [share for _, share in found] == sorted((share for _, share in found), reverse=True)
    assert example("classify_picture").main(["--weights", "squeezenet1_1.safetensors"]) == found
    said = capsys.readouterr().out
    assert "wrote" not in said
    assert said.startswith("sample.png by squeezenet1_1:")
    assert f"class {found[0][0]:4}" in said


def test_onnx_from_a_wheel(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx")
    module = example("onnx_from_a_wheel")
    if find_spec(module.PACKAGE) is None:
        pytest.skip(f"{module.PACKAGE} is not installed")
    assert module.main([str(EXAMPLES / "train_digits.py"), str(EXAMPLES / "README.md")]) == [
        "python",
        "markdown",
    ]
    assert "train_digits.py: python " in capsys.readouterr().out


def test_sentence_embeddings(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bslite, "optimize", partial(bslite.optimize, tune=False))  # no test asks a clock
    module = example("sentence_embeddings")
    for name in module.PACKAGES:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    similar = module.main([])
    assert similar[0, 1] > 0.5 > abs(similar[0, 2])
    said = capsys.readouterr().out
    assert float(said.rpartition(":")[2]) < 1e-5


@pytest.mark.parametrize(
    ("name", "constant", "nothing"),
    [("onnx_from_a_wheel", "PACKAGE", []), ("sentence_embeddings", "PACKAGES", None)],
)
def test_an_example_says_which_package_is_missing(
    name: str,
    constant: str,
    nothing: object,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = example(name)
    monkeypatch.setattr(module, constant, "nowhere" if constant == "PACKAGE" else ("nowhere",))
    assert module.main([]) == nothing
    assert "not installed" in (said := capsys.readouterr().err)
    assert "pip install nowhere" in said


def test_token_by_token(capsys: pytest.CaptureFixture[str]) -> None:
    assert example("token_by_token").main(["--hidden", "32", "--steps", "20"])
    assert "the bits of the whole sequence: yes" in capsys.readouterr().out


@pytest.mark.processes
def test_serve_and_ask(capsys: pytest.CaptureFixture[str]) -> None:
    assert example("serve_and_ask").main(["--requests", "2"]) == 0
    said = capsys.readouterr().out
    assert said.count(" here: True") == 2
    assert "ready at http://127.0.0.1:" in said


@pytest.mark.parametrize("machine", ["h200", "plasticine-large", "cpu-48-cores"])
def test_explore_a_machine(machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = example("explore_a_machine").main(["--machine", machine, "--hidden", "256"])
    assert found.best is found.ranked[0]
    said = capsys.readouterr().out
    assert f"lstm 256, 25 steps, batch 1, on {machine} (" in said
    assert str(found.best.point) in said


def test_the_list_of_examples_is_whole() -> None:
    """Each is in it, and each says at its top how to run it."""
    listed = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f"({path.name})" in listed
        assert f"    python examples/{path.name}" in path.read_text()
