"""Documentation that is generated is up to date, and what it points to exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bslite.ops.table import op_table

ROOT = Path(__file__).parent.parent


def test_op_table_is_current() -> None:
    stored = (ROOT / "docs" / "ops.md").read_text()
    assert stored == op_table(), "run: python -m bslite.ops.table > docs/ops.md"


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
