"""One compiled call per inference: every thread walks the same program and claims work items as it goes.

A step is a record of int64 cells and a number of independent items. A thread claims items by atomic counters.
Before it starts a step it waits until the *items* of the steps that this one depends on are done: it never
waits for a thread to arrive. So there is no deadlock however the threading layer schedules the walkers, one
late or descheduled core does not hold the others up, and a plain call of `walk` is the single-threaded
engine. Results do not depend on which thread does an item: the order of every sum is inside one item.

The items of a step lie in as many equal shares as there are threads, each with a counter. A thread takes the
items of its own share first, then those of the others. The first share is the top of the image in every step,
so a thread mostly reads what it wrote, from its own L2 (docs/decisions/005).
"""

from numba import njit, prange
from numba.extending import register_jitable

from bslite.kernels.cpu.runtime.apart import PLACE, keep_apart, note
from bslite.kernels.cpu.runtime.cache import cache_for
from bslite.kernels.cpu.runtime.clocks import clock, nanoseconds
from bslite.kernels.cpu.runtime.compile import CELLS, Kernel, call_item, caller
from bslite.kernels.cpu.vector.atomic import LINE, fetch_add, load_acquire, nap, spin_until
from bslite.kernels.cpu.vector.memory import load_int, store_int

JOB = (
    "program", "steps", "bases", "counters", "scratch", "scratch_bytes", "walkers", "trace", "traced",
    "shares", "took",
)  # fmt: skip
#: ``took``: nanoseconds that the last run took, times its walkers.
WALKERS, TOOK = 8 * JOB.index("walkers"), 8 * JOB.index("took")
EVENT = ("step", "item", "walker", "start", "stop")  # int64 each, the last two in ticks of the clock

call_walk = caller(1)


def counter_bytes(steps: int, shares: int) -> int:
    """Bytes of a job's counters, a cache line each: of each step, items finished, and items claimed of each
    share; behind them where each thread is.
    """
    return steps * (1 + shares) * LINE + shares * PLACE


@register_jitable
def _wait_for(needed, counter, places, slot, shares):
    """Returns when the counter at an address has reached ``needed``: all items of a step are done."""
    if not spin_until(counter, needed):
        while load_acquire(counter) < needed:
            nap()
            if places:
                keep_apart(places, slot, shares)


def _walk(job):
    """Walks the program; ``job`` is the address of the cells named in `JOB`."""
    program = load_int(job)
    steps = load_int(job + 8)
    bases = load_int(job + 16)
    counters = load_int(job + 24)
    slot = fetch_add(job + 48, 1)
    scratch_bytes = load_int(job + 40)
    scratch = load_int(job + 32) + slot * scratch_bytes
    trace = load_int(job + 56)
    shares = load_int(job + 72)
    stride = (1 + shares) * LINE
    places = counters + steps * stride if shares > 1 and slot < shares else 0
    if places:
        keep_apart(places, slot, shares)
    complete = 0  # steps before this one are known to be done
    for s in range(steps):
        if places:
            note(places, slot)
        step = program + s * CELLS * 8
        kernel = load_int(step)
        items = load_int(step + 8)
        after = load_int(step + 16)  # the number of leading steps that must be done first
        finished = counters + s * stride
        begun = scratch_bytes == 0  # no memory: nothing to clear
        for turn in range(shares):
            share = (slot + turn) % shares
            first, last = items * share // shares, items * (share + 1) // shares
            claimed = finished + (1 + share) * LINE
            if first + load_acquire(claimed) >= last:
                continue  # another thread has it
            while complete < after:
                needed = load_int(program + complete * CELLS * 8 + 8)
                _wait_for(needed, counters + complete * stride, places, slot, shares)
                complete += 1
            item = first + fetch_add(claimed, 1)
            while item < last:
                # Before it has an item, a thread writes nothing: its memory may be another job's by now.
                if not begun:
                    store_int(scratch, 0)
                    begun = True
                if trace:
                    start = clock()
                    call_item(kernel, step, bases, item, scratch)
                    event = trace + 40 * fetch_add(job + 64, 1)
                    store_int(event, s)
                    store_int(event + 8, item)
                    store_int(event + 16, slot)
                    store_int(event + 24, start)
                    store_int(event + 32, clock())
                else:
                    call_item(kernel, step, bases, item, scratch)
                fetch_add(finished, 1)
                item = first + fetch_add(claimed, 1)
    while complete < steps:  # the answer is complete only when every item is
        needed = load_int(program + complete * CELLS * 8 + 8)
        _wait_for(needed, counters + complete * stride, places, slot, shares)
        complete += 1


walk = Kernel(_walk, "walk", 1)


@register_jitable
def rewind(job):
    """Sets the counters of a job to zero."""
    counters = load_int(job + 24)
    for line in range(load_int(job + 8) * (1 + load_int(job + 72))):
        store_int(counters + line * LINE, 0)
    store_int(job + 48, 0)


def _fork_join(threads, walk_address, job):
    rewind(job)
    for _ in prange(threads):
        call_walk(walk_address, job)


fork_join = njit(parallel=True, nogil=True)(_fork_join)
fork_join._cache = cache_for(_fork_join)


def _alone(walk_address, job):
    start = nanoseconds()
    rewind(job)
    call_walk(walk_address, job)
    store_int(job + TOOK, nanoseconds() - start)


alone = njit(nogil=True)(_alone)
alone._cache = cache_for(_alone)
