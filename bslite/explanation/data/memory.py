"""The memory in use during a run, by owner."""

from collections.abc import Iterator
from dataclasses import dataclass

from bslite.explanation.data.profile import Profile
from bslite.plan import AnyPlan, Const, Plan
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


def weight_bytes(spec: ModelSpec, plan: AnyPlan) -> dict[str, int]:
    """The bytes of each parameter, by key, as steps of a plan read it: rounded to bfloat16, or as it is."""
    narrow = {key for const in _consts(plan) if _of_16_bits(const) for key in const.keys}
    return {key: p.size * (2 if key in narrow else p.itemsize) for key, p in spec.params.items()}


def _of_16_bits(const: Const) -> bool:
    """Whether a constant holds two bytes for each number."""
    how = dict(const.args)
    if const.recipe.endswith("split_panels"):
        return bool(how["b_parts"] == 1)
    return const.recipe.endswith("rounded_panels") or bool(how.get("narrow"))


def _consts(plan: AnyPlan) -> Iterator[Const]:
    """The constants of a plan and of the stacks in it."""
    yield from plan.consts.values()
    for step in plan.steps:
        if (inner := getattr(step, "inner", None)) is not None:
            yield from _consts(inner)


def bytes_held(spec: ModelSpec, plan: AnyPlan) -> dict[str, int]:
    """Bytes by owner. Weights count once, as steps read them."""
    ends = {
        kind: sum(b.size for b in plan.buffers.values() if b.kind == kind) for kind in ("input", "output")
    }
    values = {kind: 4 * size for kind, size in ends.items()}
    return {**values, "weights": sum(weight_bytes(spec, plan).values()), "arena": 4 * plan.arena_size}


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
