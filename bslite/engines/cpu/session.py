"""Running plans: memory for them, threads for them, one compiled call per inference."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite.engines.cpu.constants import aligned
from bslite.engines.cpu.detect import numba_threads
from bslite.engines.cpu.program import base_index, encode, kernels
from bslite.plan import Plan

Array = npt.NDArray[Any]
_pid = os.getpid()
_parallel = (
    threading.Lock()
)  # two parallel regions at once oversubscribe the cores, and Numba's workqueue layer aborts


class Workspace:
    """What one run at a time needs to itself: arena, scratch, counters, base addresses."""

    def __init__(self, session: Session) -> None:
        from bslite.kernels.cpu.walk import COUNTER

        plan = session.plan
        self.arena = aligned(np.empty(plan.arena_size, np.float32))
        self.scratch = aligned(np.empty(max(1, plan.scratch_size * plan.threads), np.float32))
        self.counters = aligned(np.zeros(len(plan.steps) * COUNTER // 8, np.int64))
        self.bases = session.bases.copy()
        self.bases[0] = self.arena.ctypes.data
        self.job = np.array(
            [
                session.program.ctypes.data, len(plan.steps), self.bases.ctypes.data,
                self.counters.ctypes.data,
                self.scratch.ctypes.data, plan.scratch_size * 4, 0,
            ],
            np.int64,
        )  # fmt: skip


class Session:
    """A plan made ready to run in this process. Safe to use from several threads at once."""

    def __init__(self, plan: Plan, constants: dict[str, Array]) -> None:
        from bslite.kernels.cpu.walk import walk

        self.plan = plan
        self.kernels = [*kernels(plan), walk]
        self._constants = constants  # kept alive: the program holds their addresses
        self.program = encode(plan)
        self.index = base_index(plan)
        self.bases = np.zeros(1 + max(self.index.values(), default=0), np.int64)
        for name, array in constants.items():
            self.bases[self.index[name]] = array.ctypes.data
        self._walk_address = walk.address
        self._free: list[Workspace] = []
        self._lock = threading.Lock()

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Compute ``outputs`` (row-major float32, written in place) from ``inputs`` laid out as the plan
        says.
        """
        workspace = self.acquire()
        try:
            self.execute(workspace, inputs, outputs)
        finally:
            with self._lock:
                self._free.append(workspace)

    def acquire(self) -> Workspace:
        """A workspace nobody else is using."""
        with self._lock:
            if self._free:
                return self._free.pop()
        return Workspace(self)

    def execute(self, workspace: Workspace, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run in a given workspace."""
        for kind, arrays in (("input", inputs), ("output", outputs)):
            for i, array in enumerate(arrays):
                workspace.bases[self.index[f"{kind}{i}"]] = array.ctypes.data
        workspace.counters[:] = 0
        workspace.job[6] = 0
        fork_join(self.plan.threads, self._walk_address, workspace.job.ctypes.data)


def fork_join(threads: int, walk_address: int, job: int) -> None:
    """Let up to ``threads`` threads walk the job; this one alone where that is asked for, or in a forked
    child.

    Numba can only lower the number it started with; fewer walkers than planned for do the same work, with
    the same bits.
    GNU OpenMP, the usual threading layer under Numba, cannot be used in a child forked after its first use.
    """
    import numba

    from bslite.kernels.cpu import walk

    threads = min(threads, numba_threads())
    if threads == 1 or os.getpid() != _pid:
        walk.alone(walk_address, job)
        return
    with _parallel:
        numba.set_num_threads(threads)
        walk.fork_join(threads, walk_address, job)


def fork_join_ready(threads: int) -> None:
    """Compile or load the two ways of entering a job, and start the threads, on a job of no steps."""
    from bslite.kernels.cpu.walk import walk

    job = np.zeros(7, np.int64)
    for count in {1, threads}:
        job[6] = 0
        fork_join(count, walk.address, job.ctypes.data)
