"""A machine with a unit for tiles of bfloat16: this one, the unit emulated where it has none."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from bslite.engines.cpu import engine
from bslite.machine import Machine
from bslite.plan import Plan
from bslite.plan.cpu.on_tiles import split, split_attention

CYCLES = split.CYCLES  # of a product of tiles


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models made in the test are planned for such a machine; what can be is computed by tiles."""
    with_tiles(monkeypatch.setattr)


def with_tiles(setattr: Callable[[Any, str, Any], None], **caches: int) -> None:
    """Plans for such a machine from now on, with these sizes of ``caches``."""
    described = engine.detect

    def detect(threads: int) -> Machine:
        return dataclasses.replace(described(threads), tile_cycles=CYCLES, **caches)

    setattr(engine, "detect", detect)
    for planner in (split, split_attention):
        setattr(planner, "is_faster", lambda *sizes: True)


def split_layers(plan: Plan[Any]) -> set[str]:
    """The layers of a plan, stacks included, that are computed by products of tiles."""
    found = {name for s in plan.steps if s.record.of_parts for name in s.layers}
    return found.union(*(split_layers(inner) for step in plan.steps for inner in step.plans))
