"""The models of libraries that the command examines, where these are installed."""

import importlib

import pytest

pytest.importorskip("torch")

from benchmarks import huggingface


def test_a_wrong_answer_is_called_wrong() -> None:
    seconds = (1.0, 0.5, 0.1, 0.2)
    right = huggingface.Result("a", ((3e-6, 1e-6),), 0.0, seconds, ())
    assert right.right
    assert "2.00" in str(right)
    wrong = huggingface.Result("a", ((0.0, 0.0), (1e-5, 1e-6)), 0.0, seconds, ("torch: 1 x aten.nothing",))
    assert "WRONG" in str(wrong)
    assert "aten.nothing" in str(wrong)


def test_every_model_has_a_name() -> None:
    assert len(set(huggingface.NAMES)) == len(huggingface.TRANSFORMERS) + len(huggingface.TIMM) == 40


@pytest.mark.networks
@pytest.mark.parametrize(
    ("library", "name"), [("transformers", "minilm"), ("timm", "timm:mobilenetv3_large_100")]
)
def test_a_model_is_right_at_two_sizes(library: str, name: str) -> None:
    try:
        importlib.import_module(library)
    except (ImportError, RuntimeError) as e:  # RuntimeError: a torchvision built for another torch
        pytest.skip(str(e))
    result = huggingface.examine(name, 1, 16, 1, 1)
    assert result.right
    assert len(result.errors) >= 2
    assert result.ratio > 0
