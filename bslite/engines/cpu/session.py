"""Sessions run plans: they hold memory for them and make one compiled call per inference."""

import ctypes
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from bslite.cache import Derived
from bslite.engines.cpu.detect import detect
from bslite.engines.cpu.job import Ints
from bslite.engines.cpu.program import Program, kernels_for_any_shape
from bslite.engines.cpu.workspace import Memory, Workspace
from bslite.plan import Const, Plan
from bslite.plan.cpu.outside import INEXACT
from bslite.spec import Array

#: Bytes before the addresses of inputs and outputs in a table of bases: the arena's address.
FIRST_END = 8
#: Bytes of a step of a plan: its record, its views, its cells (measured).
STEP_BYTES = 6400

_addressof, _from_buffer = ctypes.addressof, ctypes.c_char.from_buffer


def address_of(array: Array) -> int:
    """The address of an array, by the buffer protocol where possible, which is three times as fast."""
    try:
        return _addressof(_from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only or not contiguous
        return int(array.ctypes.data)


class Session:
    """A plan made ready to run in this process. Several threads may use it at once.

    ``packed`` is where ``constant`` keeps what it makes for the plan. ``key``: what tells it apart from the
    other sessions of its model. ``cells``: the dtypes of the outputs' cells. ``memory``: that of runs, which
    others share; of its own if not given. ``exact``: gives the session that computes by float32 products
    alone.
    """

    def __init__(
        self, plan: Plan, constant: Callable[[Const], Array], packed: Derived | None = None, key: Any = None,
        cells: Sequence[Any] = (), memory: Memory | None = None, exact: Callable[[], "Session"] | None = None,
    ) -> None:  # fmt: skip
        from bslite.kernels.cpu.runtime.walk import walk

        self.plan, self.packed, self.key = plan, packed or Derived(), key
        self.exact = exact
        self.program = Program(plan, constant)
        self.kernels = [*kernels_for_any_shape(plan, detect(plan.threads), self.program.kernels), walk]
        for kernel in self.kernels:
            _ = kernel.address
        self.output_shapes = [view.shape for view in plan.outputs]
        self.results = list(zip(self.output_shapes, cells, strict=False))  # what outputs are made as
        self._bind = struct.Struct(f"{len(plan.inputs) + len(plan.outputs)}q").pack_into
        self.memory = Memory() if memory is None else memory
        self.repeated = 0  # runs that were done again by multiply-adds
        self._free: list[Workspace] = []  # `append` and `pop` are atomic
        values = 4 * (plan.arena_size + plan.scratch_size * plan.threads) if memory is None else 0
        #: Bytes about that keeping it takes, besides weights and memory that are shared.
        self.size = STEP_BYTES * self.program.steps + self.program.tables + values

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Compute ``outputs`` (row-major cells, written in place) from ``inputs`` (the plan's layout).

        Raises InputError for invalid contents, such as an index out of range.
        """
        addresses: list[int] = []
        try:  # as `address_of`, without a call for each
            for array in inputs:
                addresses.append(_addressof(_from_buffer(array)))  # type: ignore[arg-type]
            for array in outputs:
                addresses.append(_addressof(_from_buffer(array)))  # type: ignore[arg-type]
        except (TypeError, ValueError, BufferError):
            addresses = [address_of(array) for array in (*inputs, *outputs)]
        self.run_at(addresses)

    def run_at(self, addresses: Sequence[int], beside_torch: bool = False) -> None:
        """`run` on memory by its addresses: those of the inputs, then those of the outputs. ``beside_torch``:
        see `turns.fork_join`.
        """
        workspace = self.acquire()
        try:
            self._bind(workspace.bases, FIRST_END, *addresses)
            plan = self.plan
            workspace.job.run(plan.threads_in_region if beside_torch else plan.threads, beside_torch)
            inexact = bool(self.plan.flags) and self.check(workspace)
        finally:
            self.release(workspace)
        if inexact:
            assert self.exact is not None
            self.exact().run_at(addresses, beside_torch)

    def trace(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Ints:
        """`run`, which also returns when each item ran and on which thread: see `walk.EVENT`."""
        workspace = self.acquire()
        try:
            self.bind(workspace, map(address_of, (*inputs, *outputs)))
            events = workspace.job.trace(self.plan.threads)
            inexact = self.check(workspace)
        finally:
            self.release(workspace)
        if inexact:
            assert self.exact is not None
            self.exact().run(inputs, outputs)
        return events

    def check(self, workspace: Workspace) -> bool:
        """Whether the run has to be done again by the session ``exact``. Raise InputError for the first layer
        whose step raised a flag. Clear the flags.
        """
        if not workspace.flags.tobytes().strip(b"\0"):  # much faster than a reduction
            return False
        raised = np.flatnonzero(workspace.flags[:, 0])
        found = [(self.plan.flags[n], int(workspace.flags[n, 1])) for n in raised]
        workspace.flags[:] = 0
        if any(flag.text == INEXACT for flag, _ in found):
            self.repeated += 1
            return True  # what other steps found may come from that
        for flag, value in found:
            raise flag.error(value)
        return False

    def acquire(self) -> Workspace:
        """A workspace that no other run uses, with memory."""
        try:
            workspace = self._free.pop()
        except IndexError:
            workspace = Workspace(self.plan, self.program)
        workspace.enter(self.memory)
        return workspace

    def release(self, workspace: Workspace) -> None:
        """Return a workspace to the free ones, and its memory to all sessions that share it."""
        workspace.leave(self.memory)
        self._free.append(workspace)

    def bind(self, workspace: Workspace, addresses: Iterable[int]) -> None:
        """Point a workspace at the caller's memory, see `run_at`."""
        self._bind(workspace.bases, FIRST_END, *addresses)
