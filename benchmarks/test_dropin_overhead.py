"""What a call of a wrapped module costs beyond its arithmetic, held to its bounds; the command that says so
at length (``python -m benchmarks.dropin_overhead``) runs, and judges.
"""

from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks import dropin_overhead


@pytest.mark.benchmark(group="a call of a small model")
@pytest.mark.parametrize("name", ["eager", "wrapped", "engine", "watch"])
def test_call(benchmark: Any, name: str) -> None:
    import torch

    function = dropin_overhead.parts()[name]
    with torch.no_grad():
        function()
        benchmark(function)


def test_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = dropin_overhead.main(["--rounds", "3", "--calls", "5"])
    text = capsys.readouterr().out
    for name in ("eager", "wrapped", "engine", "watch", "network", "watch then"):
        assert f"\n{name}" in text
    assert (code == 1) == ("FAILED" in text)


@pytest.mark.parametrize(
    ("wrapped", "words"),
    [(20.0, []), (26.0, ["eager 25.0"]), (41.0, ["31.0 us beyond the engine's", "eager 25.0"])],
)
def test_what_is_out_of_bounds_is_said(wrapped: float, words: list[str]) -> None:
    found = dropin_overhead.failures({"eager": 25.0, "wrapped": wrapped, "engine": 10.0, "watch": 5.0})
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))
