"""The models of libraries that the command examines, where these are installed."""

import importlib
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks.huggingface import __main__ as command
from benchmarks.huggingface import measure, models

Result = measure.Result


def test_a_wrong_answer_is_called_wrong(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    errors, why = ((0.0, 0.0), (1e-5, 1e-6)), ("torch: 1 x aten.nothing",)
    found = {
        "bert-base": Result("bert-base", ((3e-6, 1e-6),), 0.0, 1.0, 0.5, 0.1, 0.2),
        "vit": Result("vit", errors, 0.25, 1.0, 0.5, 0.1, 0.4, why),
    }
    monkeypatch.setattr(command, "examine", lambda name, *how: found[name])
    monkeypatch.setattr(command, "made", lambda name: name if name in found else __import__("no_library"))
    data, text = written(command.main, "--models", "bert-base", "vit", "swin", code=1)
    assert [(r["right"], r["ratio"]) for r in data["results"][:2]] == [(True, 2.0), (False, 4.0)]
    assert "| vit | NO | 1e-05 | 1e-06 | 1.00 | 0.50 | 100.00 | 400.00 | 4.00 | 25 % |" in text
    assert "Geometric mean of 2 ratios 2.83, the least 2.00." in text
    assert "aten.nothing" in text
    assert "swin, left out: No module named 'no_library'" in text


def test_every_model_has_a_name() -> None:
    assert len(set(models.NAMES)) == len(models.TRANSFORMERS) + len(models.TIMM) == 40


@pytest.mark.networks
@pytest.mark.parametrize(
    ("library", "name"), [("transformers", "minilm"), ("timm", "timm:mobilenetv3_large_100")]
)
def test_a_model_is_right_at_two_sizes(library: str, name: str) -> None:
    try:
        importlib.import_module(library)
    except (ImportError, RuntimeError) as e:  # RuntimeError: a torchvision built for another torch
        pytest.skip(str(e))
    result = measure.examine(name, models.made(name), 1, 16, 1, 1)
    assert result.right
    assert len(result.errors) >= 2
    assert result.ratio
