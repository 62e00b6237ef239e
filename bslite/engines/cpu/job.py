"""One compiled call: a program, its base addresses and counters, executed by threads."""

import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite.engines.cpu.constants import aligned
from bslite.engines.cpu.threads import numba_threads

Ints = npt.NDArray[np.int64]
#: Enters a job, by the addresses of the walker and of the job's cells.
Entry = Callable[[int, int], None]
#: Two parallel regions at once would oversubscribe the cores, and Numba's workqueue layer aborts.
_parallel = threading.Lock()
_asked = threading.local()  # `threads`: this thread's last setting of Numba, a call of over a microsecond
_forked: list[bool] = []  # not empty in a child process
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _forked.append(True))


class Job:
    """A program with its base addresses, counters and scratch memory; one run at a time may use it.

    ``program`` ``[steps, CELLS]`` and ``bases`` are kept alive, not copied. Each thread has ``slice_bytes``
    of scratch memory, see `scratch_at`. ``shares``: the number of parts that each step's items are divided
    into, one for each thread that will run.
    """

    def __init__(self, program: Ints, bases: Ints, slice_bytes: int = 0, shares: int = 1) -> None:
        from bslite.kernels.cpu.runtime.walk import EVENT, JOB, counter_bytes, walk

        self.program, self.bases = program, bases
        self.counters = aligned(np.zeros(len(program) * counter_bytes(shares) // 8, np.int64))
        self._events = len(EVENT)
        self._cell = {name: i for i, name in enumerate(JOB)}
        self._cells = np.zeros(len(JOB), np.int64)
        for name, value in {
            "program": program.ctypes.data,
            "steps": len(program),
            "bases": bases.ctypes.data,
            "counters": self.counters.ctypes.data,
            "scratch_bytes": slice_bytes,
            "shares": shares,
        }.items():
            self._cells[self._cell[name]] = value
        self._walk, self._address = walk.address, self._cells.ctypes.data

    def scratch_at(self, address: int) -> None:
        """Let the threads' scratch memory begin at ``address``, on a cache line."""
        self._cells[self._cell["scratch"]] = address

    def run(self, threads: int) -> None:
        """Run the program with up to ``threads`` threads; return when every item is done."""
        fork_join(threads, self._walk, self._address)

    def trace(self, threads: int) -> Ints:
        """Run, and return one row per item in the order they were finished; columns: `walk.EVENT`."""
        events = np.zeros((int(self.program[:, 1].sum()) + 1, self._events), np.int64)
        self._cells[self._cell["trace"]] = events.ctypes.data
        self._cells[self._cell["traced"]] = 0
        try:
            self.run(threads)
        finally:
            self._cells[self._cell["trace"]] = 0
        return events[: self._cells[self._cell["traced"]]]


def fork_join(threads: int, walk_address: int, job: int) -> None:
    """Let up to ``threads`` threads run the job; the calling thread alone for 1, and in a forked child.

    Numba can use at most the number of threads that it started with, and fewer if the caller's thread has
    called ``numba.set_num_threads`` since. That is no error: fewer threads than planned do all the work and
    give the same bits. GNU OpenMP, the usual threading layer under Numba, fails in a child process that was
    forked after its first use.
    """
    if threads > 1:
        threads = min(threads, numba_threads())
    if threads == 1 or _forked:
        _entries()[0](walk_address, job)
        return
    with _parallel:
        if getattr(_asked, "threads", 0) != threads:
            import numba

            numba.set_num_threads(threads)
            _asked.threads = threads
        _entries()[1](threads, walk_address, job)


@functools.cache
def _entries() -> tuple[Entry, Callable[[int, int, int], None]]:
    """The ways into a job: on the calling thread, and on several. An import costs as much as a small step."""
    from bslite.kernels.cpu.runtime import walk

    return walk.alone, walk.fork_join


def in_forked_child() -> bool:
    """Whether this process was forked after this module was imported; it then runs one thread."""
    return bool(_forked)


def start_threads(threads: int) -> None:
    """Compile or load both ways to enter a job, and start the threads by running a job of no steps."""
    from bslite.kernels.cpu.runtime.walk import CELLS

    job = Job(np.zeros((0, CELLS), np.int64), np.zeros(1, np.int64))
    for count in {1, threads}:
        job.run(count)


def job_of(kernel: Any, items: int, values: Mapping[str, int], bases: Sequence[int]) -> Job:
    """A job of one step outside any plan: ``values`` by the names of the record's cells, zeros elsewhere."""
    from bslite.kernels.cpu.runtime.walk import CELLS

    program = np.zeros((1, CELLS), np.int64)
    for name, value in {"kernel": kernel.address, "items": items, **values}.items():
        program[0, kernel.fields.index(name)] = value
    return Job(program, np.array(bases, np.int64))
