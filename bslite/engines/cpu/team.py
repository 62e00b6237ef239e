"""The threads that help the calling one: a team, which sleeps when there is nothing to do."""

import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bslite.engines.cpu.constants import aligned


class Team:
    """So many ``members``, threads in compiled code that never take Python's lock. One job at a time.

    Where the system has no more threads for the process there are fewer, and a warning says so. ``cores``:
    those that the calling thread is bound to, as its members then are.
    """

    def __init__(self, members: int, cores: frozenset[int] | None = None) -> None:
        from bslite.kernels.cpu.runtime import team
        from bslite.kernels.cpu.vector.atomic import LINE

        first, step = team.MEMBERS // 8, LINE // 8
        self._cells = aligned(np.zeros(first + members * step, np.int64))
        self._tickets = self._cells[first::step]
        self._address, self.members, self.asked = self._cells.ctypes.data, members, members
        self.cores = cores
        self._lead, self._most = team.lead, team.MOST
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
        kept = self._cells, self._held
        self._end = weakref.finalize(self, _send_home, team.stop, self.members, self._threads, kept)

    def run(self, helpers: int, walk: int, job: int) -> int:
        """Run a job, by the addresses of its walker and its cells, with up to ``helpers`` members.

        Returns 0, or a ticket if some may still read the job's memory, though all of it is done; see `hold`.
        """
        return int(self._lead(self._address, self.members, walk, job, min(helpers, self.members, self._most)))

    def works(self, ticket: int) -> bool:
        """Whether a member has not left the job of a ticket."""
        return bool((self._tickets == ticket).any())

    def hold(self, ticket: int, memory: Any) -> None:
        """Keep what a job uses until no member works for its ticket."""
        self._held[:] = [(t, kept) for t, kept in self._held if self.works(t)]
        self._held.append((ticket, memory))

    def dissolve(self) -> None:
        """Send the members home, as is done where nobody has the team any more."""
        self._end()


def _send_home(
    stop: Callable[[int, int], None], members: int, threads: Sequence[threading.Thread], kept: Any
) -> None:
    """Send the members of a team home, and wait for them a little: one may be off its core, with the memory
    that is ``kept`` in use. The first of it are the team's cells.
    """
    stop(kept[0].ctypes.data, members)
    for thread in threads:
        thread.join(1.0)
    if any(thread.is_alive() for thread in threads):
        _LINGERING.append(kept)


_LINGERING: list[Any] = []  # memory of teams that were sent home, but for a member that has not seen it yet
