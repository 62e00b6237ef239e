"""How the time of a stack divides among its layers: its program run once more, by one thread, traced.

A band of an image is one work item of a stack, so the trace of the run does not look inside. The shares found
here are scaled to the time of the stack in that trace. Bands at the edges have plans of their own; the shares
are those of the band in the middle.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bslite.engines.cpu.constants import aligned
from bslite.engines.cpu.job import Job
from bslite.engines.cpu.program import Program
from bslite.engines.cpu.session import Session, address_of
from bslite.explanation.data.profile import Array, steps_of
from bslite.plan import Const
from bslite.plan.cpu.step import CpuPlan, CpuStep

ITEMS = 4  # bands or images, at most; the first is run twice, to warm up
ROUNDS = 5


@dataclass(frozen=True)
class Inner:
    """``shares`` of a stack's time that its steps take, summing to 1, and the ``stacks`` among them."""

    shares: Array
    stacks: "Mapping[int, Inner]"


def inner_shares(
    session: Session, inputs: Sequence[Array], outputs: Sequence[Array], constant: Callable[[Const], Array]
) -> dict[int, Inner]:
    """How the time of each "stack" step of the plan, by its number, divides. Overwrites ``outputs``."""
    plan = session.plan
    workspace = session.acquire()
    try:
        session.bind(workspace, map(address_of, (*inputs, *outputs)))
        workspace.job.run(plan.threads)
        memory = _Memory(plan, session.program, workspace.bases)
        return {i: _divide(s, memory, constant) for i, s in enumerate(plan.steps) if s.inner}
    finally:
        session.release(workspace)


@dataclass(frozen=True)
class _Memory:
    """Where the buffers of a plan are while it runs."""

    plan: CpuPlan
    program: Program
    bases: Array

    def address(self, buffer: str) -> int:
        return int(self.bases[self.program.index[buffer]]) + 4 * self.plan.places.get(buffer, 0)


def _divide(step: CpuStep, outside: _Memory, constant: Callable[[Const], Array]) -> Inner:
    plan = step.inner
    assert plan is not None
    program = Program(plan, constant)
    arena = aligned(np.zeros(max(1, plan.arena_size), np.float32))
    scratch = aligned(np.zeros(max(1, plan.scratch_size), np.float32))
    bases = program.bases.copy()
    bases[0] = arena.ctypes.data
    job = Job(program.records, bases)
    job.scratch_at(scratch.ctypes.data)
    images = step.items // len(step.bands)
    alike = [band for band in step.bands if step.plans[band.plan] is plan]
    items = [(image, band) for image in range(images) for band in alike][:ITEMS]
    rounds = []
    for round_ in range(ROUNDS):
        ticks = np.zeros(len(plan.steps))
        for image, band in items[:1] * (round_ == 0) + items:
            for end in band.ends:
                start = end.offset + image * end.image
                bases[program.index[end.inner]] = outside.address(end.outer) + 4 * start
            ticks += steps_of(job.trace(1), len(ticks))
        rounds.append(ticks / max(1.0, ticks.sum()))
    typical = np.median(rounds, axis=0)
    memory = _Memory(plan, program, bases)
    stacks = {i: _divide(s, memory, constant) for i, s in enumerate(plan.steps) if s.inner}
    return Inner(np.asarray(typical / (typical.sum() or 1.0)), stacks)
