"""Threads of a job stay on CPUs of their own, where they need all that there are.

A thread that waits sleeps for a moment. The system then moves another one to its idle CPU, mostly one of
the same job. When the first wakes, the two share that CPU, and a process that has nothing to do with them has
the other one. The system evens that out after tens of milliseconds at best; where the other process is niced,
not at all. So each thread notes on which CPU it is, and one that finds itself on that of another thread of
its job goes to one that none of them is on (docs/decisions/033).
"""

import sys

from llvmlite import ir
from numba.extending import register_jitable

from bslite.kernels.cpu.vector.atomic import LINE
from bslite.kernels.cpu.vector.memory import load_int, store_int
from bslite.kernels.cpu.vector.simd import I32, I64, call_llvm, i64, primitive

_LINUX = sys.platform == "linux"
WORDS = 16  # of a set of CPUs, 64 each
# What is kept of a thread: the number of its CPU, plus 1; room for two sets of CPUs.
_ALLOWED, _OTHER = LINE, LINE + 8 * WORDS
PLACE = LINE + 2 * 8 * WORDS  # bytes


def _call(builder, name, *arguments):
    return builder.sext(call_llvm(builder, name, I32, arguments), I64)


@primitive(i64)
def cpu(builder):
    """The number of the CPU that this thread is on; negative where the system does not say."""
    return _call(builder, "sched_getcpu") if _LINUX else ir.Constant(I64, -1)


def _set_call(name):
    """Intrinsic: calls a function with the address of this thread's set of CPUs; 0 if it did it."""

    def call(builder, address):
        if not _LINUX:
            return ir.Constant(I64, -1)
        return _call(builder, name, ir.Constant(I32, 0), ir.Constant(I64, 8 * WORDS), address)

    call.__name__ = name
    return primitive(i64, i64)(call)


_allowed, _allow = _set_call("sched_getaffinity"), _set_call("sched_setaffinity")


@register_jitable
def note(places, slot):
    """Says on which CPU the thread of a slot is; ``places``: the address of `PLACE` bytes for each slot."""
    store_int(places + slot * PLACE, cpu() + 1)


@register_jitable
def keep_apart(places, slot, slots):
    """Moves the thread of a slot if an earlier one is on the same CPU, and the ``slots`` need all CPUs."""
    own = places + slot * PLACE
    here = cpu() + 1
    store_int(own, here)
    for other in range(slot):
        if here > 0 and load_int(places + other * PLACE) == here:
            _move(places, own, slots)
            return


@register_jitable
def _move(places, own, slots):
    """Lets the thread go on at a CPU that no other one of the job is on. Then it may use those it could."""
    allowed, other = own + _ALLOWED, own + _OTHER
    if _allowed(allowed) != 0:  # more CPUs than a set holds
        return
    count, free = 0, -1
    for at in range(64 * WORDS):
        if load_int(allowed + 8 * (at >> 6)) >> (at & 63) & 1:
            count += 1
            taken = False
            for slot in range(slots):
                taken |= load_int(places + slot * PLACE) == at + 1
            if not taken:
                free = at
    if free < 0 or count > slots:
        return
    for word in range(WORDS):
        store_int(other + 8 * word, 1 << (free & 63) if word == free >> 6 else 0)
    if _allow(other) != 0:
        return
    store_int(own, free + 1)
    # A thread without a set of its own follows its container, whose CPUs may change: all, if it is the same.
    for word in range(WORDS):
        store_int(other + 8 * word, -1)
    _allow(other)
    same = _allowed(other) == 0
    for word in range(WORDS):
        same &= load_int(other + 8 * word) == load_int(allowed + 8 * word)
    if not same:
        _allow(allowed)
