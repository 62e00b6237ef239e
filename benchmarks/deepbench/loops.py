"""The CPU's loop parameters for a recurrent layer, and plans made with those one asks for.

The one place that knows how `bslite.explore` prices a point of the space and how the planner is made to take
it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.deepbench.points import Point
from bslite.engines.cpu.session import Session
from bslite.machine import Machine
from bslite.plan import build_plan
from bslite.plan.core.views import contiguous
from bslite.plan.cpu.tuning import Tuning
from bslite.spec import ModelSpec


@dataclass(frozen=True)
class Candidate:
    """A point of the space and what it is predicted to take, seconds; ``loops`` as the planner wants it."""

    values: Mapping[str, Any]
    predicted: float
    loops: Any

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.values.items())


def candidates(point: Point, batch: int, machine: Machine) -> list[Candidate]:
    """All that are possible, the search's pick first."""
    from bslite.explore import search
    from bslite.explore.cpu import Explorer, Loops

    ranked = search(Explorer(), point.problem(batch), machine).ranked
    return [Candidate(e.point.as_dict(), e.seconds, Loops.of(e.point)) for e in ranked]


def session_with(spec: ModelSpec, shape: tuple[int, ...], machine: Machine, loops: Any) -> Session:
    """The model planned with these loop parameters; packed weights are shared by all such sessions of it."""
    from bslite.engines.cpu.engine import engine_for

    engine = engine_for(spec)
    plan = build_plan(engine.spec, [shape], machine, input_strides=[contiguous(shape)], tuning=Tuning(loops))
    return Session(plan, engine.constant)
