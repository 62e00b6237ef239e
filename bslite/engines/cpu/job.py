"""One compiled call: a program, its base addresses and counters, executed by threads."""

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite.engines.cpu.constants import aligned
from bslite.engines.cpu.threads import numba_threads

Ints = npt.NDArray[np.int64]
_pid = os.getpid()
#: Two parallel regions at once would oversubscribe the cores, and Numba's workqueue layer aborts.
_parallel = threading.Lock()
_asked = threading.local()  # `threads`: this thread's last setting of Numba, a call of over a microsecond


class Job:
    """A program with its base addresses, counters and scratch memory; one run at a time may use it.

    ``program`` ``[steps, CELLS]`` and ``bases`` are kept alive, not copied. ``scratch`` holds ``slice_bytes``
    for each thread. ``shares``: the number of parts that each step's items are divided into, one for each
    thread that will run.
    """

    def __init__(
        self,
        program: Ints,
        bases: Ints,
        scratch: npt.NDArray[Any] | None = None,
        slice_bytes: int = 0,
        shares: int = 1,
    ) -> None:
        from bslite.kernels.cpu.runtime.walk import EVENT, JOB, counter_bytes

        self.program, self.bases, self.scratch = program, bases, scratch
        self.counters = aligned(np.zeros(len(program) * counter_bytes(shares) // 8, np.int64))
        self._events = len(EVENT)
        self._cell = {name: i for i, name in enumerate(JOB)}
        self._cells = np.zeros(len(JOB), np.int64)
        for name, value in {
            "program": program.ctypes.data,
            "steps": len(program),
            "bases": bases.ctypes.data,
            "counters": self.counters.ctypes.data,
            "scratch": scratch.ctypes.data if scratch is not None else 0,
            "scratch_bytes": slice_bytes,
            "shares": shares,
        }.items():
            self._cells[self._cell[name]] = value
        self._walkers, self._address = self._cell["walkers"], self._cells.ctypes.data

    def run(self, threads: int) -> None:
        """Run the program with up to ``threads`` threads; return when every item is done."""
        from bslite.kernels.cpu.runtime.walk import walk

        self.counters.fill(0)
        self._cells[self._walkers] = 0
        fork_join(threads, walk.address, self._address)

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
    import numba

    from bslite.kernels.cpu.runtime import walk

    threads = min(threads, numba_threads())
    if threads == 1 or in_forked_child():
        walk.alone(walk_address, job)
        return
    with _parallel:
        if getattr(_asked, "threads", 0) != threads:
            numba.set_num_threads(threads)
            _asked.threads = threads
        walk.fork_join(threads, walk_address, job)


def in_forked_child() -> bool:
    """Whether this process was forked after this module was imported; it then runs one thread."""
    return os.getpid() != _pid


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
