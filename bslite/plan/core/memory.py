"""One arena per plan: buffers placed by lifetime, and the order of steps that placement and data allow."""

import bisect
import operator
from typing import NamedTuple

from bslite.plan.core.plan import Access, AnyPlan

ALIGN = 16  # elements: a cache line
GROWN = 1.15  # times the memory that is not worth it
NEAR = 8  # buffers before and after one that are looked at


def lifetimes(plan: AnyPlan) -> dict[str, tuple[int, int]]:
    """The first and last step that touches each arena buffer."""
    spans: dict[str, tuple[int, int]] = {}
    for index, step in enumerate(plan.steps):
        for access in (*step.reads, *step.writes):
            if access.buffer in plan.buffers and plan.buffers[access.buffer].kind == "arena":
                first, _ = spans.get(access.buffer, (index, index))
                spans[access.buffer] = (first, index)
    return spans


class Placed(NamedTuple):
    """A buffer's place, in elements, and the first and the last step that touch it."""

    start: int
    stop: int
    first: int
    last: int

    def meets(self, first: int, last: int) -> bool:
        """Whether it exists during one of these steps."""
        return not (self.last < first or last < self.first)


def place_buffers(plan: AnyPlan, reuse: bool = True, align: int = ALIGN, shares: int = 1) -> None:
    """Fill in ``plan.places`` and ``plan.arena_size``.

    The largest buffer is placed first, and each at the lowest multiple of ``align`` elements that is free
    during its lifetime: or elsewhere below the end of the others, where the ``shares`` of threads then have
    more of what they had of the buffers that are there before and after. If that takes `GROWN` times the
    memory, each is placed lowest.
    """
    plan.places, plan.arena_size = _places(plan, reuse, align, 1)
    if shares > 1 and reuse:
        places, size = _places(plan, reuse, align, shares)
        if size <= GROWN * plan.arena_size:
            plan.places, plan.arena_size = places, size


def _places(plan: AnyPlan, reuse: bool, align: int, shares: int) -> tuple[dict[str, int], int]:
    """Where each buffer begins, and where the last one ends."""
    spans, places, end = lifetimes(plan), dict[str, int](), 0
    placed: list[Placed] = []
    in_time = InTime([], [])
    for name in sorted(spans, key=lambda n: (-plan.buffers[n].size, n)):
        size = -(-plan.buffers[name].size // align) * align + align  # kernels may over-read by one vector
        first, last = spans[name]
        rivals = sorted(p for p in placed if not reuse or p.meets(first, last))
        start = 0
        for other in rivals:
            if start + size <= other.start:
                break
            start = max(start, other.stop)
        end = max(end, start + size)
        if shares > 1:
            others = in_time.near(first, last)
            tried = {start, *(place for p in others for place in _beside(p, size, align))}
            free = [at for at in tried if all(at + size <= p.start or p.stop <= at for p in rivals)]
            steps = len(plan.steps)
            start = min(free, key=lambda at: (_astray(at, size, first, last, others, steps, shares), at))
        placed.append(Placed(start, start + size, first, last))
        places[name] = start
        if shares > 1:
            in_time.add(placed[-1])
    return places, end


class InTime(NamedTuple):
    """Placed buffers in the order of their first steps, and in that of their last ones."""

    by_first: list[Placed]
    by_last: list[Placed]

    def add(self, new: Placed) -> None:
        """Put a buffer in."""
        bisect.insort(self.by_first, new, key=_first)
        bisect.insort(self.by_last, new, key=_last)

    def near(self, first: int, last: int) -> list[Placed]:
        """The buffers just before and just after these steps, of the run before and after, too."""
        count = len(self.by_first)
        end = bisect.bisect_left(self.by_last, first, key=_last)
        start = bisect.bisect_right(self.by_first, last, key=_first)
        before = [self.by_last[(end - 1 - i) % count] for i in range(min(NEAR, count))]
        after = [self.by_first[(start + i) % count] for i in range(min(NEAR, count))]
        return [p for p in dict.fromkeys(before + after) if not p.meets(first, last)]


_first, _last = operator.attrgetter("first"), operator.attrgetter("last")


def _beside(other: Placed, size: int, align: int) -> list[int]:
    """Where a buffer of ``size`` elements, within a larger one, has its beginning, middle or end."""
    middle = (other.start + other.stop - size) // 2
    return [other.start, -(-middle // align) * align, other.stop - size]


def _astray(
    start: int, size: int, first: int, last: int, others: list[Placed], steps: int, shares: int
) -> int:
    """The elements of a buffer at ``start`` that a thread has, and another one just before, or just after.
    ``others``: buffers near in time that do not exist together with it. A run begins where the one before
    ended.
    """
    over = [p for p in others if p.start < start + size and start < p.stop]
    if not over:
        return 0
    before = min(over, key=lambda p: (first - p.last) % steps)
    after = min(over, key=lambda p: (p.first - last) % steps)
    return sum(_differs(start, size, p, shares) for p in (before, after))


def _differs(start: int, size: int, other: Placed, shares: int) -> int:
    """The elements that are of one thread in one buffer, and of another in the other."""
    common = min(start + size, other.stop) - max(start, other.start)
    whole = other.stop - other.start
    for t in range(shares):
        low = max(start + size * t // shares, other.start + whole * t // shares)
        high = min(start + size * (t + 1) // shares, other.start + whole * (t + 1) // shares)
        common -= max(0, high - low)
    return common


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
