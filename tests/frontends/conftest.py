"""What tests of the frontends share."""

import pytest

from bslite.onnx.host import HOST


@pytest.fixture
def without_det(monkeypatch: pytest.MonkeyPatch) -> None:
    """Det as an operator that bslite does not have, in NumPy neither: of ONNX's own few are left to try."""
    monkeypatch.delitem(HOST, "Det")
