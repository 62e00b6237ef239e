"""The threads that help the calling one: a team for the process, which sleeps when there is nothing to do.

Where torch is imported they are OpenMP's instead, by Numba's parallel regions. Its threads spin for
milliseconds after each of torch's operations, on the cores that a team would need; so torch's own help.
"""

import atexit
import functools
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from bslite.engines.cpu.constants import aligned
from bslite.engines.cpu.threads import numba_threads


class Team:
    """So many ``members``, threads in compiled code that never take Python's lock. One job at a time.

    Where the system has no more threads for the process there are fewer, and a warning says so.
    """

    def __init__(self, members: int) -> None:
        from bslite.kernels.cpu.runtime import team
        from bslite.kernels.cpu.vector.atomic import LINE

        first, step = team.MEMBERS // 8, LINE // 8
        self._cells = aligned(np.zeros(first + members * step, np.int64))
        self._tickets = self._cells[first::step]
        self._address, self.members, self.asked = self._cells.ctypes.data, members, members
        self._lead, self._stop = team.lead, team.stop
        self._held: list[tuple[int, Any]] = []
        own = [self._address + team.MEMBERS + i * LINE for i in range(members)]
        self._threads = [
            threading.Thread(target=team.serve, args=(self._address, cell), name=f"bslite-{i}", daemon=True)
            for i, cell in enumerate(own, 1)
        ]
        for i, thread in enumerate(self._threads):
            try:
                thread.start()
            except RuntimeError as e:
                warnings.warn(f"bslite runs {i + 1} of {members + 1} threads: {e}", UserWarning, stacklevel=2)
                self._threads, self.members = self._threads[:i], i
                break

    def run(self, helpers: int, walk: int, job: int) -> int:
        """Run a job, by the addresses of its walker and its cells, with up to ``helpers`` members.

        Returns 0, or a ticket if some may still read the job's memory, though all of it is done; see `hold`.
        """
        return int(self._lead(self._address, self.members, walk, job, helpers))

    def works(self, ticket: int) -> bool:
        """Whether a member has not left the job of a ticket."""
        return bool((self._tickets == ticket).any())

    def hold(self, ticket: int, memory: Any) -> None:
        """Keep what a job uses until no member works for its ticket."""
        self._held = [(t, kept) for t, kept in self._held if self.works(t)]
        self._held.append((ticket, memory))

    def dissolve(self) -> None:
        """Send the members home, and wait for them a little: one may be off its core."""
        self._stop(self._address, self.members)
        for thread in self._threads:
            thread.join(1.0)


class _Process:
    """The team of this process, and whose turn it is: two jobs at once would oversubscribe the cores."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.team: Team | None = None
        self.forked = False  # GNU OpenMP does not go on in a forked child

    def of(self, members: int) -> Team:
        """A team of so many members or more. Call it in your turn."""
        if self.team is None or self.team.asked < members:
            if self.team is not None:
                self.team.dissolve()
            self.team = Team(members)
        return self.team


def _forget() -> None:
    """In a forked child no member lives on, and a thread that had its turn is not there to end it."""
    global process
    process = _Process()
    process.forked = True


def _end() -> None:
    if process.team is not None:
        process.team.dissolve()


process = _Process()
atexit.register(_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def fork_join(threads: int, walk: int, job: int, memory: Any = None) -> bool:
    """Let up to ``threads`` threads run a job, by the addresses of its walker and its cells; the calling
    thread alone for 1. Python and Numba may allow fewer, which do all the work and make the same bits.

    ``memory`` is what the job uses. Returns whether the caller may use it again: it must not where a thread
    that the system took off its core has not seen yet that there is nothing left to do. Without ``memory``
    this waits for such a thread, as it must where a walker may return before all of its job is done.
    """
    if threads > 1:
        threads = min(threads, numba_threads())
    if threads == 1:
        _alone()(walk, job)
        return True
    with process.turn:
        if "torch" in sys.modules and not process.forked:
            _region(threads, walk, job)
            return True
        team = process.of(threads - 1)
        ticket = team.run(min(threads - 1, team.members), walk, job)
        if ticket and memory is not None:
            team.hold(ticket, memory)
            return False
        while ticket and team.works(ticket):
            time.sleep(0)
    return True


def _region(threads: int, walk: int, job: int) -> None:
    """A job in a parallel region of Numba's, which ends when all of its threads have come."""
    if getattr(_asked, "threads", 0) != threads:
        import numba

        numba.set_num_threads(threads)
        _asked.threads = threads
    _fork_join()(threads, walk, job)


_asked = threading.local()  # `threads`: this thread's last setting of Numba, a call of over a microsecond


@functools.cache
def _fork_join() -> Callable[[int, int, int], None]:
    from bslite.kernels.cpu.runtime.walk import fork_join

    made: Callable[[int, int, int], None] = fork_join
    return made


@functools.cache
def _alone() -> Callable[[int, int], None]:
    """The way into a job on the calling thread. An import costs as much as a small step."""
    from bslite.kernels.cpu.runtime.walk import alone

    made: Callable[[int, int], None] = alone
    return made
