"""Which runs have threads now, and which threads: a team of the engine's own, or OpenMP's."""

import atexit
import functools
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from bslite.engines.cpu.places import bound
from bslite.engines.cpu.team import Team
from bslite.engines.cpu.threads import numba_threads, usable_cores


class Turns:
    """Runs of several threads that share the cores: as many at a time as have a core for each of their
    threads, in the order in which they come. A run that wants more cores than there are has all to itself.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0  # cores
        self._waiting: deque[tuple[int, threading.Lock]] = deque()

    def begin(self, threads: int) -> None:
        """Wait for the turn of a run. Each one that begins has to `end`."""
        with self._lock:
            if self._fits(threads) and not self._waiting:
                self._taken += threads
                return
            gate = threading.Lock()
            gate.acquire()
            self._waiting.append((threads, gate))
        try:
            gate.acquire()
        except BaseException:  # an interrupt
            with self._lock:
                waits = (threads, gate) in self._waiting
                if waits:
                    self._waiting.remove((threads, gate))
            if not waits:
                self.end(threads)
            raise

    def end(self, threads: int) -> None:
        """Give the cores of a run to those that wait."""
        with self._lock:
            self._taken -= threads
            while self._waiting and self._fits(self._waiting[0][0]):
                wanted, gate = self._waiting.popleft()
                self._taken += wanted
                gate.release()

    def _fits(self, threads: int) -> bool:
        return not self._taken or self._taken + threads <= usable_cores()


RESTED = 300_000  # nanoseconds without a run, after which the members of all teams sleep


class Process:
    """The teams of this process that no run has, and whose turn it is."""

    def __init__(self, forked: bool = False) -> None:
        self.turns = Turns()
        self.ended = 0  # when a run ended that had a team or might have had one
        self.forked = forked  # GNU OpenMP does not go on in a forked child
        self._free: dict[frozenset[int] | None, list[Team]] = {}  # by the cores that they are bound to
        self._lock = threading.Lock()

    def take(self, members: int) -> Team:
        """A team of so many members, or more if such a one is free, on the caller's cores if it is bound to
        some. `give` it back.
        """
        cores = bound()
        found: Team | None = None
        small: Team | None = None
        with self._lock:
            alike = self._free.get(cores, [])
            for team in alike:
                if team.asked < members:
                    small = team
                elif found is None or team.asked < found.asked:
                    found = team
            if found is not None:
                alike.remove(found)
                return found
            if small is not None:
                alike.remove(small)
        if small is not None:
            small.dissolve()
        return Team(members, cores)

    def give(self, team: Team) -> None:
        """Let other runs have a team."""
        with self._lock:
            self._free.setdefault(team.cores, []).append(team)

    def rested(self) -> bool:
        """Whether all members sleep, as far as is known without asking them."""
        return time.perf_counter_ns() - self.ended > RESTED

    def end(self) -> None:
        """Send all teams home that no run has."""
        with self._lock:
            free, self._free = self._free, {}
        for teams in free.values():
            for team in teams:
                team.dissolve()


def _forget() -> None:
    """In a forked child no member lives on, and a thread that had its turn is not there to end it."""
    global process
    process = Process(forked=True)


process = Process()
atexit.register(lambda: process.end())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def fork_join(
    threads: int, walk: int, job: int, memory: Any = None, beside_torch: bool = False, brief: bool = False
) -> bool:
    """Let up to ``threads`` threads run a job, by the addresses of its walker and its cells; the calling
    thread alone for 1. Numba's setting and the system may allow fewer, which do all the work and make the
    same bits. Runs of several threads take turns where there are too few cores for all.

    ``memory`` is what the job uses. Returns whether the caller may use it again: it must not where a thread
    that the system took off its core has not seen yet that there is nothing left to do. Without ``memory``
    this waits for such a thread, as it must where a walker may return before all of its job is done.

    ``beside_torch``: torch computes just before and after. Then OpenMP's threads help, in a parallel region
    of Numba's: torch's own spin for milliseconds after each of its operations, on a core that a member needs.
    Where Numba's regions have other threads, a team does it nevertheless: TBB's share a core with torch's
    for whole time slices.

    ``brief``: the job takes no longer than a member that sleeps needs to come. The calling thread does it
    alone unless a run has just ended, whose members may be awake.
    """
    if threads > 1:
        threads = min(threads, numba_threads())
    if threads == 1:
        _alone()(walk, job)
        return True
    here = process
    if brief and not beside_torch and here.rested():
        _alone()(walk, job)
        here.ended = time.perf_counter_ns()
        return True
    here.turns.begin(threads)
    try:
        if beside_torch and not here.forked and _with_openmp():
            _region(threads, walk, job)
            return True
        team = here.take(threads - 1)
        try:
            ticket = team.run(threads - 1, walk, job)
            if ticket and memory is not None:
                team.hold(ticket, memory)
                return False
            while ticket and team.works(ticket):
                time.sleep(0)
            return True
        finally:
            here.give(team)
            here.ended = time.perf_counter_ns()
    finally:
        here.turns.end(threads)


def _region(threads: int, walk: int, job: int) -> None:
    """A job in a parallel region of Numba's, which ends when all of its threads have come."""
    if getattr(_asked, "threads", 0) != threads:
        import numba

        numba.set_num_threads(threads)
        _asked.threads = threads
    _fork_join()(threads, walk, job)


@functools.cache
def _with_openmp() -> bool:
    """Whether OpenMP's threads run Numba's parallel regions: not where TBB is installed, or others are asked
    for.
    """
    import numba
    from numba.np.ufunc.parallel import _launch_threads

    try:
        _launch_threads()  # which chooses among those that there are
    except ValueError:  # there are none
        return False
    return bool(numba.threading_layer() == "omp")


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
