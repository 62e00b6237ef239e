"""One arena per plan: buffers placed by lifetime, and the order of steps that placement and data allow."""

from bslite.plan.core.plan import Access, AnyPlan

ALIGN = 16  # elements: a cache line


def lifetimes(plan: AnyPlan) -> dict[str, tuple[int, int]]:
    """The first and last step that touches each arena buffer."""
    spans: dict[str, tuple[int, int]] = {}
    for index, step in enumerate(plan.steps):
        for access in (*step.reads, *step.writes):
            if access.buffer in plan.buffers and plan.buffers[access.buffer].kind == "arena":
                first, _ = spans.get(access.buffer, (index, index))
                spans[access.buffer] = (first, index)
    return spans


def place_buffers(plan: AnyPlan, reuse: bool = True, align: int = ALIGN) -> None:
    """Fill in ``plan.places`` and ``plan.arena_size``.

    The largest buffer is placed first, and each at the lowest multiple of ``align`` elements that is free
    during its lifetime.
    """
    spans = lifetimes(plan)
    placed: list[tuple[int, int, int, int]] = []  # start, stop, first step, last step
    for name in sorted(spans, key=lambda n: (-plan.buffers[n].size, n)):
        size = -(-plan.buffers[name].size // align) * align + align  # kernels may over-read by one vector
        first, last = spans[name]
        rivals = sorted(p for p in placed if not reuse or not (p[3] < first or last < p[2]))
        start = 0
        for other_start, other_stop, _, _ in rivals:
            if start + size <= other_start:
                break
            start = max(start, other_stop)
        placed.append((start, start + size, first, last))
        plan.places[name] = start
    plan.arena_size = max((stop for _, stop, _, _ in placed), default=0)


def set_order(plan: AnyPlan, sequential: bool = False) -> None:
    """Fill in ``step.after``: all steps up to the last one whose data or memory this step depends on."""
    moved = [
        ([_in_arena(plan, a) for a in s.reads], [_in_arena(plan, a) for a in s.writes]) for s in plan.steps
    ]
    for index, step in enumerate(plan.steps):
        step.after = index
        if sequential:
            continue
        reads, writes = moved[index]
        while step.after > 0:
            earlier_reads, earlier_writes = moved[step.after - 1]
            if (
                _clash(reads, earlier_writes)
                or _clash(writes, earlier_writes)
                or _clash(writes, earlier_reads)
            ):
                break
            step.after -= 1


def _in_arena(plan: AnyPlan, access: Access) -> tuple[str, int, int, Access]:
    place = plan.places.get(access.buffer)
    if place is None:
        return access.buffer, access.lo, access.hi, access
    return "arena", place + access.lo, place + access.hi, access


def _clash(some: list[tuple[str, int, int, Access]], others: list[tuple[str, int, int, Access]]) -> bool:
    for space, lo, hi, a in some:
        for other_space, other_lo, other_hi, b in others:
            if (
                space == other_space
                and lo < other_hi
                and other_lo < hi
                and (a.buffer != b.buffer or a.overlaps(b))
            ):
                return True
    return False
