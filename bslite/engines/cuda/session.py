"""Running plans: a workspace for every run that is under way at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from bslite.engines.cuda.driver import Driver, Memory
from bslite.engines.cuda.program import launches, start_all
from bslite.errors import InputError
from bslite.plan import Const, Plan


class Workspace:
    """What one run at a time needs to itself: the arena, flags, and the launches that use them."""

    def __init__(self, session: CudaSession, stream: int) -> None:
        plan, driver = session.plan, session.driver
        self.arena = driver.allocate(4 * plan.arena_size, stream)
        bases = {name: self.arena.address + 4 * at for name, at in plan.places.items()}
        self.flags = None
        if plan.flags:
            self.flags = driver.allocate(16 * len(plan.flags), stream)
            bases["flags"] = self.flags.address
            driver.upload(self.flags.address, np.zeros(4 * len(plan.flags), np.int32), stream)
        self.launches = launches(plan, driver, bases, session.constants)


class CudaSession:
    """A plan made ready to run on a device. Safe to use from several threads at once."""

    def __init__(self, plan: Plan, driver: Driver, constant: Callable[[Const], Memory]) -> None:
        self.plan = plan
        self.driver = driver
        self.constants = {name: constant(const) for name, const in plan.consts.items()}
        self.output_shapes = [view.shape for view in plan.outputs]
        self._free: list[Workspace] = []
        self._lock = threading.Lock()

    def run(self, inputs: Sequence[int], outputs: Sequence[int], stream: int) -> None:
        """Start the computation of ``outputs`` (addresses, row-major cells) on ``stream``; ``inputs``,
        addresses, lie as the plan says.

        InputError if what they hold turns out wrong: only of models that look at what they hold.
        """
        workspace = self.acquire(stream)
        try:
            self.run_in(workspace, inputs, outputs, stream)
        finally:
            self.release(workspace)

    def run_in(
        self, workspace: Workspace, inputs: Sequence[int], outputs: Sequence[int], stream: int
    ) -> None:
        """As `run`, in a workspace that was acquired."""
        callers = {f"input{i}": address for i, address in enumerate(inputs)}
        callers |= {f"output{i}": address for i, address in enumerate(outputs)}
        start_all(self.driver, workspace.launches, stream, callers)
        self.check(workspace, stream)

    def check(self, workspace: Workspace, stream: int) -> None:
        """InputError if a step found something wrong, of the first such layer; the workspace is as new."""
        if workspace.flags is None:
            return
        found = np.zeros((len(self.plan.flags), 2), np.int64)
        self.driver.download(found.view(np.int32), workspace.flags.address, stream)
        raised = np.flatnonzero(found[:, 0])
        if len(raised):
            (layer, text), value = self.plan.flags[raised[0]], found[raised[0], 1]
            self.driver.upload(workspace.flags.address, np.zeros(found.size * 2, np.int32), stream)
            raise InputError(f"layer {layer!r}: {text.format(value=value)}")

    def acquire(self, stream: int) -> Workspace:
        """A workspace nobody else is using."""
        with self._lock:
            if self._free:
                return self._free.pop()
        return Workspace(self, stream)

    def release(self, workspace: Workspace) -> None:
        """Give a workspace back."""
        with self._lock:
            self._free.append(workspace)
