"""A machine with dot products of bfloat16: this one, where no instruction does it by ordinary vector code."""

import dataclasses

import pytest

from bslite.engines.cpu import engine
from bslite.machine import Machine


@pytest.fixture
def dots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models made in the test are planned for such a machine."""
    described = engine.detect

    def detect(threads: int) -> Machine:
        return dataclasses.replace(described(threads), dot_cycles=1.0, tile_cycles=0.0)

    monkeypatch.setattr(engine, "detect", detect)
