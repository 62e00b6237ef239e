"""What most tests of drop-ins begin with: a small network, and the same optimized."""

from typing import Any

import pytest


@pytest.fixture
def net() -> Any:
    from support.dropin_models import Net

    return Net().eval()


@pytest.fixture
def fast(net: Any) -> Any:
    """``net`` optimized, nothing measured; what is unsupported is an error."""
    from support.dropin_models import wrapped

    return wrapped(net)
