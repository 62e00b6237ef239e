"""What the command on weights of few bits measures and writes."""

from typing import Any

import pytest

from benchmarks import few_bits


def test_rows_of_every_size(written: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(few_bits, "SIZES", (64, 128))
    monkeypatch.setattr(few_bits, "ROWS", (1, 5))
    monkeypatch.setattr(few_bits, "BITS", (4,))
    data, text = written(few_bits.main, "--layers", "2", "--rounds", "1", "--seconds", "0.001")
    assert [(r["bits"], r["rows"]) for r in data["results"]] == [(4, 1), (4, 5)]
    for found in data["results"]:
        assert found["errors"]["bslite"] < 1e-6
        assert found["errors"]["onnxruntime"] < 1e-5
        assert min(found["seconds"].values()) > 0
    assert "| 4 | 5 | " in text
