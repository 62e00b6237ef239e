"""The memory in use during a run, by owner."""

from dataclasses import dataclass

from bslite.explanation.data.profile import Profile
from bslite.plan import AnyPlan, Plan
from bslite.plan.core.memory import lifetimes
from bslite.spec import ModelSpec


@dataclass(frozen=True)
class Memory:
    """``totals``: bytes that each owner holds throughout. ``live``: bytes of the arena in use, per step.

    ``starts``: when each step was first worked on, in seconds from the run's start, never decreasing.
    """

    totals: dict[str, int]
    live: tuple[int, ...]
    starts: tuple[float, ...]


def bytes_held(spec: ModelSpec, plan: AnyPlan) -> dict[str, int]:
    """Bytes by owner. Weights count once: their packed copies are of the same size."""
    ends = {
        kind: sum(b.size for b in plan.buffers.values() if b.kind == kind) for kind in ("input", "output")
    }
    weights = sum(p.size for p in spec.params.values())
    return {k: 4 * n for k, n in {**ends, "weights": weights, "arena": plan.arena_size}.items()}


def memory_of(spec: ModelSpec, plan: Plan, timing: Profile) -> Memory:
    """The memory of one run of ``plan``."""
    totals = bytes_held(spec, plan) | {"scratch of all threads": 4 * plan.scratch_size * plan.threads}
    live = [0] * len(plan.steps)
    for name, (first, last) in lifetimes(plan).items():
        for i in range(first, last + 1):
            live[i] += 4 * plan.buffers[name].size
    starts = [float("inf")] * len(plan.steps)
    for step, start in zip(timing.items.step.tolist(), timing.items.start.tolist(), strict=True):
        starts[step] = min(starts[step], start)
    clock = 0.0
    for i, start in enumerate(starts):
        clock = max(clock, start if start != float("inf") else clock)
        starts[i] = clock
    return Memory(totals, tuple(live), tuple(starts))
