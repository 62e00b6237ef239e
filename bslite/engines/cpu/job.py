"""One compiled call: a program, its base addresses and counters, executed by threads."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite.engines.cpu.constants import aligned
from bslite.engines.cpu.turns import fork_join

Ints = npt.NDArray[np.int64]
#: Nanoseconds of a job, of all its threads together, that is over before a thread that sleeps could help: a
#: region of sleeping threads took 70,000 on one machine, a member more than 500,000 to come on another.
BRIEF = 100_000


class Job:
    """A program with its base addresses, counters and scratch memory; one run at a time may use it.

    ``program`` ``[steps, CELLS]`` and ``bases`` are kept alive, not copied. Each thread has ``slice_bytes``
    of scratch memory, see `scratch_at`. ``shares``: the number of parts that each step's items are divided
    into, one for each thread that will run.
    """

    def __init__(self, program: Ints, bases: Ints, slice_bytes: int = 0, shares: int = 1) -> None:
        from bslite.kernels.cpu.runtime.walk import EVENT, JOB, counter_bytes, walk

        self.program, self.bases = program, bases
        self.counters = aligned(np.zeros(counter_bytes(len(program), shares) // 8, np.int64))
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

    def run(self, threads: int, beside_torch: bool = False) -> None:
        """Run the program with up to ``threads`` threads, as `fork_join`; return when every item is done."""
        memory = self._cells, self.counters, self.program
        brief = threads > 1 and bool(0 < self._cells[self._cell["took"]] < BRIEF)
        if not fork_join(threads, self._walk, self._address, memory, beside_torch, brief):
            self._renew()

    def _renew(self) -> None:
        """Leave cells and counters to a thread that may still read them, and take others."""
        self.counters = aligned(np.zeros(len(self.counters), np.int64))
        self._cells = self._cells.copy()
        self._cells[self._cell["counters"]] = self.counters.ctypes.data
        self._address = self._cells.ctypes.data

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


def start_threads(threads: int) -> None:
    """Compile or load both ways to enter a job, and start the threads, by running a job of no steps."""
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
