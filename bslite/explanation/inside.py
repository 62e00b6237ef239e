"""How the time of a stack divides among its layers: its program run once more, by one thread, traced.

A stack is one work item per image, so the run's own trace does not look inside. What is found here is scaled
to the time that trace says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from bslite.engines.cpu.constants import aligned
from bslite.engines.cpu.job import Job
from bslite.engines.cpu.program import Program
from bslite.engines.cpu.session import Session, Workspace
from bslite.explanation.profile import Array, steps_of
from bslite.plan import Const, Step

IMAGES = 4  # at most; the first is run twice, to warm up
ROUNDS = 5


def inner_shares(
    session: Session, inputs: Sequence[Array], outputs: Sequence[Array], constant: Callable[[Const], Array]
) -> dict[int, Array]:
    """For each "stack" step of the plan, by its number: each inner step's share of the time; they sum to 1.

    Overwrites ``outputs``.
    """
    plan = session.plan
    workspace = session.acquire()
    try:
        session.bind(workspace, inputs, outputs)
        workspace.job.run(plan.threads)
        return {i: _shares(session, workspace, s, constant) for i, s in enumerate(plan.steps) if s.stack}
    finally:
        session.release(workspace)


def _shares(session: Session, workspace: Workspace, step: Step, constant: Callable[[Const], Array]) -> Array:
    assert step.stack is not None
    program = Program(step.stack, constant)
    arena = aligned(np.zeros(max(1, step.stack.arena_size), np.float32))
    rounds = []
    for round_ in range(ROUNDS):
        ticks = np.zeros(len(step.stack.steps))
        for image in [0] * (round_ == 0) + list(range(min(step.items, IMAGES))):
            bases = program.bases.copy()
            bases[0] = arena.ctypes.data
            for end in step.ends:
                start = end.offset + session.plan.places.get(end.outer, 0) + image * end.image
                outer = workspace.bases[session.program.index[end.outer]]
                bases[program.index[end.inner]] = outer + 4 * start
            events = Job(program.records, bases).trace(1)
            ticks += steps_of(events, len(ticks))
        rounds.append(ticks / max(1.0, ticks.sum()))
    typical = np.median(rounds, axis=0)
    return np.asarray(typical / (typical.sum() or 1.0))
