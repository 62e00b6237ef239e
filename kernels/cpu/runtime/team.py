"""A team of threads that wait for jobs: they spin for a while, then sleep. Nobody waits for one that is late.

A job is posted under a ticket, in one word with the number of members that are still to come. A member notes
the ticket in its own cell, then takes a place in the job, and walks. The leader walks, too; when it is back,
every item of the job is done, and it takes the places that are left. A member may then still be on its way
out, or have been taken off its core there. The leader does not wait for it, it tells the caller, who keeps
the job's memory until the member's cell says otherwise.

Members that sleep are woken where it is likely to be worth it: for a job whose last run took its walkers,
together, longer than a member takes to come, and where jobs follow each other so closely that the next one
finds them awake.
"""

import platform
import sys

from llvmlite import ir
from numba import njit, types
from numba.extending import register_jitable

from bslite.kernels.cpu.runtime.cache import cache_for
from bslite.kernels.cpu.runtime.clocks import nanoseconds
from bslite.kernels.cpu.runtime.walk import TOOK, WALKERS, call_walk, rewind
from bslite.kernels.cpu.vector.atomic import LINE, compare_exchange, exchange, fetch_add, load_acquire, pause
from bslite.kernels.cpu.vector.memory import load_int, store_int
from bslite.kernels.cpu.vector.simd import I32, I64, i64, primitive

#: Cells of a team, a cache line each; behind them the ticket that each member works for, or 0.
#: ``WOKEN``: when members were woken last; ``COMING``: how long one took to come then; ``ENDED``: when the
#: last job ended. All in nanoseconds.
WORD, JOB, WALK, SLEEPERS, STOP, WOKEN, COMING, ENDED, MEMBERS = (i * LINE for i in range(9))
PLACES = 8  # bits of the word that count places; the ticket is above them
MOST = (1 << PLACES) - 1
SPINS = 8000  # pauses before a member sleeps: some hundred microseconds
LEAVING = 400  # pauses that members have to leave a job
CLOSELY = 50_000  # nanoseconds between jobs that follow each other closely: less than `SPINS` take
LONGER = 2  # how many times as long as a member needs to come a job takes for which it is woken
FORGETS = 5  # a job for which none was woken takes a 32nd off what is known of their coming
_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine()) if sys.platform == "linux" else None
_WAIT, _WAKE = 128, 129  # FUTEX_WAIT and FUTEX_WAKE, of one process alone


def _call(builder, name, result, *arguments, more=False):
    kinds = [a.type for a in arguments[:1]] if more else [a.type for a in arguments]
    kind = ir.FunctionType(result, kinds, var_arg=more)
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(function, arguments)


def _futex(builder, address, operation, value):
    constants = (ir.Constant(I64, number) for number in (_FUTEX, operation))
    number, operation = constants
    _call(builder, "syscall", I64, number, address, operation, value, ir.Constant(I64, 0), more=True)


@primitive(types.void, i64, i64)
def sleep_while(builder, address, value):
    """Lets the thread sleep until it is woken, unless the int64 at an address is no longer ``value``; where
    the system has no such call, for a while.
    """
    if _FUTEX is not None:
        _futex(builder, address, _WAIT, value)
    elif sys.platform != "win32":
        _call(builder, "usleep", I32, ir.Constant(I32, 50))


@primitive(types.void, i64, i64)
def wake(builder, address, count):
    """Wakes ``count`` threads that sleep on an address."""
    if _FUTEX is not None:
        _futex(builder, address, _WAKE, count)


def _serve(team, own):
    """What a member does until the team is dissolved; ``own``: the address of its cell."""
    served, spins = 0, 0
    while not load_acquire(team + STOP):
        word = load_acquire(team)
        ticket = word >> PLACES
        if word & MOST and ticket != served:
            job, walk = load_int(team + JOB), load_int(team + WALK)
            exchange(own, ticket)
            while word & MOST and word >> PLACES == ticket:
                found = compare_exchange(team, word, word - 1)
                if found == word:
                    call_walk(walk, job)
                    break
                word = found
            exchange(own, 0)
            served, spins = ticket, 0
        elif spins < SPINS:
            spins += 1
            pause()
        else:
            lay_down = nanoseconds()
            fetch_add(team + SLEEPERS, 1)
            sleep_while(team, word)
            fetch_add(team + SLEEPERS, -1)
            spins, woken = 0, load_acquire(team + WOKEN)
            if woken > lay_down:
                before = load_acquire(team + COMING)
                took = nanoseconds() - woken
                exchange(team + COMING, (before + took) // 2 if before else took)


@register_jitable
def _worth_waking(team, job, start):
    """Whether to wake members for a job that begins at ``start``."""
    took, coming = load_int(job + TOOK), load_acquire(team + COMING)
    if took == 0 or took > LONGER * coming or start - load_int(team + ENDED) < CLOSELY:
        return True
    exchange(team + COMING, coming - (coming >> FORGETS))
    return False


def _lead(team, members, walk, job, helpers):
    """Runs a job with up to ``helpers`` members; returns its ticket if some may still be in it, else 0."""
    start = nanoseconds()
    rewind(job)
    store_int(team + JOB, job)
    store_int(team + WALK, walk)
    ticket = (load_acquire(team) >> PLACES) + 1
    exchange(team, ticket << PLACES | helpers)
    if fetch_add(team + SLEEPERS, 0) > 0 and _worth_waking(team, job, start):
        exchange(team + WOKEN, start)
        wake(team, helpers)
    call_walk(walk, job)
    end = nanoseconds()
    store_int(job + TOOK, (end - start) * load_int(job + WALKERS))
    store_int(team + ENDED, end)
    exchange(team, ticket << PLACES)
    for _ in range(LEAVING):
        inside = False
        for member in range(members):
            if fetch_add(team + MEMBERS + member * LINE, 0) == ticket:
                inside = True
        if not inside:
            return 0
        pause()
    return ticket


def _stop(team, members):
    """Sends all members home."""
    store_int(team + STOP, 1)
    exchange(team, ((load_acquire(team) >> PLACES) + 1) << PLACES)
    wake(team, members)


serve, lead, stop = (njit(nogil=True)(function) for function in (_serve, _lead, _stop))
for _made, _function in ((serve, _serve), (lead, _lead), (stop, _stop)):
    _made._cache = cache_for(_function)
