"""Sessions run plans: they hold memory for them and make one compiled call per inference."""

import ctypes
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite.cache import Derived
from bslite.engines.cpu.constants import room
from bslite.engines.cpu.detect import detect
from bslite.engines.cpu.job import Ints, Job
from bslite.engines.cpu.program import Program, kernels_for_any_shape
from bslite.errors import EngineError, InputError
from bslite.plan import Const, Plan

Array = npt.NDArray[Any]
#: Bytes before the addresses of inputs and outputs in a table of bases: the arena's address.
FIRST_END = 8

_addressof, _from_buffer = ctypes.addressof, ctypes.c_char.from_buffer


def address_of(array: Array) -> int:
    """The address of an array, by the buffer protocol where possible, which is three times as fast."""
    try:
        return _addressof(_from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only or not contiguous
        return int(array.ctypes.data)


class Workspace:
    """The memory that one run at a time uses: arena, scratch, job."""

    def __init__(self, session: "Session") -> None:
        plan = session.plan
        self.size = 4 * (plan.arena_size + plan.scratch_size * plan.threads)  # bytes
        check_room(self.size)
        self.arena, scratch = room(plan.arena_size), room(plan.scratch_size * plan.threads)
        self.bases = session.program.bases.copy()
        self.bases[0] = self.arena.ctypes.data
        self.flags = np.zeros((len(plan.flags), 2), np.int64)
        if plan.flags:
            self.bases[session.program.index["flags"]] = self.flags.ctypes.data
        self.job = Job(session.program.records, self.bases, scratch, plan.scratch_size * 4, plan.threads)


def check_room(size: int) -> None:
    """Raise EngineError if the machine has fewer than ``size`` bytes of memory."""
    try:
        have = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return  # this system does not say
    if size > have:
        raise EngineError(
            f"running this model at this size takes {size / 2**30:,.1f} GB for values between layers; "
            f"the machine has {have / 2**30:,.1f} GB"
        )


class Session:
    """A plan made ready to run in this process. Several threads may use it at once.

    ``packed`` is where ``constant`` keeps what it makes for the plan. ``key``: what tells it apart from the
    other sessions of its model. ``cells``: the dtypes of the outputs' cells.
    """

    def __init__(
        self, plan: Plan, constant: Callable[[Const], Array], packed: Derived | None = None, key: Any = None,
        cells: Sequence[Any] = (),
    ) -> None:  # fmt: skip
        from bslite.kernels.cpu.runtime.walk import walk

        self.plan, self.packed, self.key = plan, packed or Derived(), key
        self.program = Program(plan, constant)
        self.kernels = [*kernels_for_any_shape(plan, detect(plan.threads), self.program.kernels), walk]
        for kernel in self.kernels:
            _ = kernel.address
        self.output_shapes = [view.shape for view in plan.outputs]
        self.results = list(zip(self.output_shapes, cells, strict=False))  # what outputs are made as
        self._bind = struct.Struct(f"{len(plan.inputs) + len(plan.outputs)}q").pack_into
        self._free: list[Workspace] = []  # `append` and `pop` are atomic

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

    def run_at(self, addresses: Sequence[int]) -> None:
        """`run` on memory by its addresses: those of the inputs, then those of the outputs."""
        workspace = self.acquire()
        try:
            self._bind(workspace.bases, FIRST_END, *addresses)
            workspace.job.run(self.plan.threads)
            if self.plan.flags:
                self.check(workspace)
        finally:
            self._free.append(workspace)

    def trace(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Ints:
        """`run`, which also returns when each item ran and on which thread: see `walk.EVENT`."""
        workspace = self.acquire()
        try:
            self.bind(workspace, map(address_of, (*inputs, *outputs)))
            events = workspace.job.trace(self.plan.threads)
            self.check(workspace)
            return events
        finally:
            self.release(workspace)

    def check(self, workspace: Workspace) -> None:
        """Raise InputError for the first layer whose step raised a flag, and clear the flags."""
        if not workspace.flags.tobytes().strip(b"\0"):  # much faster than a reduction
            return
        raised = np.flatnonzero(workspace.flags[:, 0])
        if len(raised):
            (layer, text), value = self.plan.flags[raised[0]], workspace.flags[raised[0], 1]
            workspace.flags[:] = 0
            raise InputError(f"layer {layer!r}: {text.format(value=value)}")

    def memory(self) -> int:
        """Bytes of the workspaces that wait for a run."""
        return sum(w.size for w in list(self._free))

    def acquire(self) -> Workspace:
        """A workspace that no other run uses."""
        try:
            return self._free.pop()
        except IndexError:
            return Workspace(self)

    def release(self, workspace: Workspace) -> None:
        """Return a workspace to the free ones."""
        self._free.append(workspace)

    def bind(self, workspace: Workspace, addresses: Iterable[int]) -> None:
        """Point a workspace at the caller's memory, see `run_at`."""
        self._bind(workspace.bases, FIRST_END, *addresses)
