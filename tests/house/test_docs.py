"""Documentation that is generated is up to date, and what it points to exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bslite.ops.table import op_table

ROOT = Path(__file__).parents[2]


def test_op_table_is_current() -> None:
    stored = (ROOT / "docs" / "ops.md").read_text()
    assert stored == op_table(), "run: python -m bslite.ops.table > docs/ops.md"


def test_onnx_table_is_current() -> None:
    onnx = pytest.importorskip("onnx")
    from bslite.frontends.onnx.table import onnx_table

    stored = (ROOT / "docs" / "onnx.md").read_text()
    if f"onnx {onnx.__version__}." not in stored:
        pytest.skip("written with another version of onnx, whose operators are others")
    assert stored == onnx_table(), "run: python -m bslite.frontends.onnx.table > docs/onnx.md"


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text()):
        assert target.startswith("http") or (ROOT / target).exists(), target


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_files_named_in_text_exist(page: str) -> None:
    named = re.findall(
        r"`((?:bslite|reference|kernels|tests|benchmarks|docs)/[\w/]+\.(?:py|md))`", (ROOT / page).read_text()
    )
    for path in named:
        assert (ROOT / path).exists(), path
