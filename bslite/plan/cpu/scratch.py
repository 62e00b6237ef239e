"""A thread's scratch memory: how much of it the stacks and kernels of a plan need."""

from bslite.plan.core.memory import ALIGN
from bslite.plan.cpu.step import CpuPlan

#: Elements behind a thread's memory: what it fetches ahead of its own is not another's, and a stack whose
#: steps need none may clear the eight bytes behind its own.
GAP = 8192


def bases_of(plan: CpuPlan) -> int:
    """Entries in a plan's table of base addresses: arena, other buffers, constants."""
    return 1 + sum(b.kind != "arena" for b in plan.buffers.values()) + len(plan.consts)


def stack_arena_at(plan: CpuPlan) -> int:
    """First element of a stack's arena in a thread's scratch memory: behind its table of base addresses."""
    return -(-2 * bases_of(plan) // ALIGN) * ALIGN


def own_scratch(plan: CpuPlan) -> int:
    """Elements of scratch memory that a stack with this plan uses itself; nested stacks start behind them."""
    return stack_arena_at(plan) + -(-plan.arena_size // ALIGN) * ALIGN + ALIGN


def scratch_of(plan: CpuPlan) -> int:
    """Elements of scratch memory that a thread needs to run the plan's steps."""
    stacks = [own_scratch(p) + scratch_of(p) for step in plan.steps for p in step.plans]
    return max([*stacks, *(-(-step.scratch // ALIGN) * ALIGN for step in plan.steps)], default=0)


def apart(size: int) -> int:
    """The memory of threads that need ``size`` elements each, one behind the other."""
    return size + GAP if size else 0
