"""Tests that run PTX come last: processes beside this one compile for them while the others run."""

from __future__ import annotations

import pytest

LATE = "test_gpu_ptx_ops.py"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Behind all others, in their order."""
    items.sort(key=lambda item: item.path.name == LATE)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Hundreds of variants, in the order of the tests; not for a list of tests, nor where there is a GPU."""
    chosen = [item for item in session.items if item.path.name == LATE]
    if not chosen or session.config.option.collectonly:
        return
    from bslite.kernels.cuda.runtime.device import SIMULATED

    if SIMULATED:
        from support.ptx.compiler import ask
        from support.ptx_gpu import variants_of

        for item in chosen:
            given = item.callspec.params  # type: ignore[attr-defined]
            ask(variants_of(given["op"], given["case"]))


def pytest_sessionfinish() -> None:
    """Nobody waits for what is still to be compiled."""
    from support.ptx.compiler import stop

    stop()
