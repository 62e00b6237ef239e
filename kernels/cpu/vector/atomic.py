"""Counters that threads share, by which they claim work and wait for work, never for another thread."""

import sys

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import register_jitable

from bslite.kernels.cpu.vector.simd import I32, I64, i64, pointer, primitive
from bslite.kernels.cpu.vector.target import simd

LINE = 64  # bytes of a cache line
SPINS = 4000  # pauses before a waiting thread sleeps: a tenth of a millisecond or two
NAP = 20  # microseconds that it sleeps at a time
_X86 = simd().lanes >= 8


@primitive(i64, i64, i64)
def fetch_add(builder, address, n):
    """Adds ``n`` to the int64 at an address; returns the old value."""
    return builder.atomic_rmw("add", pointer(builder, address, I64), n, "acq_rel")


@primitive(i64, i64, i64)
def exchange(builder, address, n):
    """Puts ``n`` into the int64 at an address; returns the old value. What follows is not seen before it."""
    return builder.atomic_rmw("xchg", pointer(builder, address, I64), n, "seq_cst")


@primitive(i64, i64, i64, i64)
def compare_exchange(builder, address, expected, n):
    """Puts ``n`` into the int64 at an address if that is ``expected``; returns the old value."""
    place = pointer(builder, address, I64)
    return builder.extract_value(builder.cmpxchg(place, expected, n, "seq_cst", "acquire"), 0)


@primitive(i64, i64)
def load_acquire(builder, address):
    """The int64 at an address; all that its writer wrote before is then visible."""
    return builder.load_atomic(pointer(builder, address, I64), "acquire", 8)


@primitive(types.void)
def pause(builder):
    """Tells the core that this thread spins."""
    if _X86:
        fn = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"
        )
        builder.call(fn, [])


@primitive(types.void)
def nap(builder):
    """Leaves the core for a moment. The system then lets the thread have it that others wait for, even if
    that one stood in the queue of another core; a thread that only yields goes on spinning meanwhile.
    """
    if sys.platform != "win32":
        fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(I32, [I32]), "usleep")
        builder.call(fn, [ir.Constant(I32, NAP)])


@register_jitable
def spin_until(counter, needed):
    """Whether the counter at an address reaches ``needed`` while this thread spins for a while."""
    for _ in range(SPINS):
        if load_acquire(counter) >= needed:
            return True
        pause()
    return False


@register_jitable
def wait_until(counter, needed):
    """Returns when the counter at an address has reached ``needed``."""
    if not spin_until(counter, needed):
        while load_acquire(counter) < needed:
            nap()
