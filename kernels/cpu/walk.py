"""One compiled call per inference: every thread walks the same program and claims work items as it goes.

A step is a record of int64 cells and a number of independent items. A thread claims items by atomic counters,
and before it starts a step it waits until the *items* of the steps that one depends on are done: it never
waits for a thread to arrive. So there is no deadlock however the threading layer schedules the walkers, one
late or descheduled core does not hold the others up, and a plain call of `walk` is the single-threaded
engine. Which thread does an item cannot change a result: the order of every sum is inside one item.

The items of a step lie in as many equal shares as there are threads, each with a counter. A thread takes
those of its own share first, then of the others': the first share is the top of the image in every step, so
what a thread reads is mostly what it wrote, and lies in its own L2. (Measured on two cores of a mesh: 110
GB/s from there, 25 from the other core's; writing over what the other core wrote last, 13 GB/s in place of
57.)
"""

from __future__ import annotations

import sys

from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.core.typing.templates import signature
from numba.extending import intrinsic, register_jitable

from bslite.kernels.cpu.cache import cache_for
from bslite.kernels.cpu.compile import CELLS, Kernel, call_item, caller
from bslite.kernels.cpu.simd import I32, I64, load_int, pointer, store_int
from bslite.kernels.cpu.target import simd

JOB = (
    "program", "steps", "bases", "counters", "scratch", "scratch_bytes", "walkers", "trace", "traced",
    "shares",
)  # fmt: skip
EVENT = ("step", "item", "walker", "start", "stop")  # int64 each, the last two in ticks of the clock
LINE = 64  # bytes of a cache line
SPINS = 4000  # pauses before a waiting thread offers its core to others
_X86 = simd().lanes >= 8
_YIELD = "sched_yield" if sys.platform != "win32" else None

call_walk = caller(1)


def _atomic(name, emit, ret, *params):
    def codegen(context, builder, sig, args):
        value = emit(builder, *args)
        return context.get_dummy_value() if ret is types.void else value

    names = ", ".join(f"a{i}" for i in range(len(params)))
    scope = {"codegen": codegen, "result": signature(ret, *params)}
    exec(f"def {name}(typingctx{', ' if names else ''}{names}): return result, codegen", scope)
    return intrinsic(scope[name])


fetch_add = _atomic(
    "fetch_add",
    lambda b, address, n: b.atomic_rmw("add", pointer(b, address, I64), n, "acq_rel"),
    types.int64, types.int64, types.int64,
)  # fmt: skip
load_acquire = _atomic(
    "load_acquire",
    lambda b, address: b.load_atomic(pointer(b, address, I64), "acquire", 8),
    types.int64,
    types.int64,
)


def _emit_pause(builder):
    if _X86:
        fn = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"
        )
        builder.call(fn, [])


def _emit_yield(builder):
    if _YIELD:
        fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I32, []), _YIELD)
        builder.call(fn, [])


def _emit_clock(builder):
    fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I64, []), "llvm.readcyclecounter")
    return builder.call(fn, [])


pause = _atomic("pause", _emit_pause, types.void)
yield_core = _atomic("yield_core", _emit_yield, types.void)
clock = _atomic("clock", _emit_clock, types.int64)  # ticks of a steady counter; the caller finds their rate


def counter_bytes(shares: int) -> int:
    """Of one step's counters, a cache line each: items finished, and items claimed of each share."""
    return (1 + shares) * LINE


@register_jitable
def _wait_for(program, counters, stride, step):
    """Return when all items of a step are done."""
    needed = load_int(program + step * CELLS * 8 + 8)
    finished = counters + step * stride
    spins = 0
    while load_acquire(finished) < needed:
        spins += 1
        if spins < SPINS:
            pause()
        else:
            yield_core()


def _walk(job):
    """``job`` is the address of the cells named in `JOB`."""
    program = load_int(job)
    steps = load_int(job + 8)
    bases = load_int(job + 16)
    counters = load_int(job + 24)
    slot = fetch_add(job + 48, 1)
    scratch = load_int(job + 32) + slot * load_int(job + 40)
    trace = load_int(job + 56)
    shares = load_int(job + 72)
    stride = (1 + shares) * LINE
    complete = 0  # steps before this one are known to be done
    for s in range(steps):
        step = program + s * CELLS * 8
        kernel = load_int(step)
        items = load_int(step + 8)
        after = load_int(step + 16)  # how many leading steps must be done first
        finished = counters + s * stride
        for turn in range(shares):
            share = (slot + turn) % shares
            first, last = items * share // shares, items * (share + 1) // shares
            claimed = finished + (1 + share) * LINE
            if first + load_acquire(claimed) >= last:
                continue  # it is taken
            while complete < after:
                _wait_for(program, counters, stride, complete)
                complete += 1
            item = first + fetch_add(claimed, 1)
            while item < last:
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
    while complete < steps:  # the answer is whole only when every item is
        _wait_for(program, counters, stride, complete)
        complete += 1


walk = Kernel(_walk, "walk", 1)


def _fork_join(threads, walk_address, job):
    for _ in prange(threads):
        call_walk(walk_address, job)


fork_join = njit(parallel=True, nogil=True)(_fork_join)
fork_join._cache = cache_for(_fork_join)


def _alone(walk_address, job):
    call_walk(walk_address, job)


alone = njit(nogil=True)(_alone)
alone._cache = cache_for(_alone)
