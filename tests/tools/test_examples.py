"""The examples, as a newcomer runs them."""

import importlib.util
import warnings
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch

import bslite
from bslite.dropin import training

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
    whole = training.Trainer._trained
    monkeypatch.setattr(training.Trainer, "_trained", lambda *given: made.append(whole(*given)) or made[-1])
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
