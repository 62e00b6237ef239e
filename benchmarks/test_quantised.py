"""What the command on quantised networks writes."""

from typing import Any

import pytest

from benchmarks import quantised


def test_a_row_for_every_form(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantised, "export", lambda path: None)
    monkeypatch.setattr(quantised, "quantised", lambda source, form, path: path.write_text(form))
    times = dict(zip(quantised.FORMS, ([0.1, 0.1, 0.2], [0.1, 0.2, 0.4], [0.2, 0.2, 0.2]), strict=True))
    monkeypatch.setattr(quantised, "compared", lambda path, rounds: (times[path.read_text()], [0.2] * rounds))
    data, text = written(quantised.main, "--rounds", "3")
    assert [(r["form"], r["ratio"]) for r in data["results"]] == list(
        zip(quantised.FORMS, (2.0, 1.0, 1.0), strict=True)
    )
    assert f"| {next(iter(quantised.FORMS))} | 100.0 | 200.0 | 2.00 |" in text
    assert data["options"]["rounds"] == 3
