"""Running plans: a workspace for every run that is under way at once, and graphs of its launches."""

import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bslite.engines.cuda.driver import Array, Driver, Graph, Memory
from bslite.engines.cuda.library import Library, TorchCall, torch_call
from bslite.engines.cuda.program import Ready, launches, segments
from bslite.errors import EngineError
from bslite.ops import Shape
from bslite.plan import Const, Plan

MOST_WORKSPACES = 4  # of one plan that wait for their turn; beyond, a run waits for another's end
LEAST_GRAPH = 2  # launches: a graph of one starts no faster


class Workspace:
    """What one run at a time needs to itself: the arena, flags, and the launches that use them.

    ``stream``: which used it last; ``event``: when that is done. ``theirs``: the caller is capturing.
    """

    def __init__(self, session: "CudaSession", stream: int, theirs: bool = False) -> None:
        plan, driver = session.plan, session.driver
        self._driver = driver
        self.stream = self.home = stream
        self.event = driver.event()
        weakref.finalize(self, driver.discard, self.event).atexit = False
        what = f"values between layers of {plan.model!r}"
        self.arena = driver.allocate(4 * plan.arena_size, stream, what)
        bases = {name: self.arena.address + 4 * at for name, at in plan.places.items()}
        self.flags = None
        if plan.flags:
            self.flags = driver.allocate(16 * len(plan.flags), stream)
            bases["flags"] = self.flags.address
            self.clear_flags(len(plan.flags), stream)
        self.launches: list[Any] = launches(plan, driver, bases, session.constants)
        if session.library is not None:
            if not theirs:  # measuring writes to the arena, on another stream: what had the memory goes first
                driver.record(self.event, stream)
                driver.wait(self.event, driver.private())
            self.launches = session.library.choose(
                plan,
                self.launches,
                lambda step: torch_call(plan, step, driver, bases, session.constants, session.params),
                measure=not theirs,
            )
        self.runs = 0
        self._parts: list[Graph | list[Ready]] | None = None
        self.ends: list[Memory] = []  # copies of the host's inputs and outputs

    def clear_flags(self, count: int, stream: int) -> None:
        """Clear all flags."""
        if self.flags is not None:
            self._driver.clear(self.flags.address, 16 * count, stream)

    def capture(self) -> None:
        """Make graphs of the launches that touch none of the caller's memory, once a run has loaded them."""
        if self.runs and self._parts is None:
            self._parts = [
                self._driver.capture(
                    lambda s, run=run: _start(run, s, {}),  # type: ignore[misc]
                    by_torch=any(isinstance(launch, TorchCall) for launch in run),
                )
                if graph
                else run
                for graph, run in segments(self.launches, LEAST_GRAPH)
            ]

    def start(self, callers: Mapping[str, int], stream: int, graphs: bool) -> None:
        """Start all launches in order; ``graphs``: as graphs, where there are."""
        self.runs += 1
        for part in self._parts if graphs and self._parts is not None else [self.launches]:
            if isinstance(part, list):
                _start(part, stream, callers)
            else:
                part.start(stream)


def _start(run: Sequence[Ready], stream: int, callers: Mapping[str, int]) -> None:
    for launch in run:
        launch.start(stream, callers)


class CudaSession:
    """A plan made ready to run on a device. Safe to use from several threads and streams at once."""

    def __init__(
        self,
        plan: Plan,
        driver: Driver,
        constant: Callable[[Const], Memory],
        params: Mapping[str, Shape] | None = None,
        library: Library | None = None,
        keep: Callable[["CudaSession"], object] = id,
    ) -> None:
        """``params``: the shapes of the model's; ``library``: chooses between torch's kernels and ours.
        ``keep``: told when a graph of the caller's takes addresses of this session's memory.
        """
        self.plan = plan
        self.params, self.library, self._keep = params or {}, library, keep
        self.driver = driver
        self.constants = {name: constant(const) for name, const in plan.consts.items()}
        self.output_shapes = [view.shape for view in plan.outputs]
        #: Why launches are started one by one; empty if they are captured.
        self.no_graphs = "" if driver.graphs else f"{driver.name} captures nothing"
        self._free: list[Workspace] = []
        self.captured: list[Workspace] = []  # by graphs of the caller's: theirs for good
        self._streams: set[int] = set()
        self._lock = threading.Lock()
        driver.register(self)

    def run(self, inputs: Sequence[int], outputs: Sequence[int], stream: int) -> None:
        """Start the computation of ``outputs`` on ``stream``; these and ``inputs`` are addresses of what lies
        as the plan says. It may not be done when this returns.

        InputError if what they hold turns out wrong; only of models that look at what they hold, and then it
        is done.
        """
        with self.driver.here():
            if self.driver.capturing(stream):
                with self.driver.unrestricted():
                    workspace = Workspace(self, stream, theirs=True)
                    self.captured.append(workspace)
                    self._keep(self)
                    self.run_in(workspace, inputs, outputs, stream, theirs=True)
                return
            workspace = self.acquire(stream)
            try:
                self.run_in(workspace, inputs, outputs, stream)
            finally:
                self.release(workspace, stream)

    def run_in(
        self,
        workspace: Workspace,
        inputs: Sequence[int],
        outputs: Sequence[int],
        stream: int,
        theirs: bool = False,
    ) -> None:
        """As `run`, in a workspace that was acquired. ``theirs``: the caller captures the stream."""
        callers = {f"input{i}": a for i, a in enumerate(inputs)}
        callers |= {f"output{i}": a for i, a in enumerate(outputs)}
        if not (self.no_graphs or theirs):
            try:
                workspace.capture()
            except Exception as e:
                self._without_graphs(e)
        workspace.start(callers, stream, graphs=not (self.no_graphs or theirs))
        if not theirs:
            self.check(workspace, stream)

    def run_host(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """As `run` for arrays of the host, on a stream of this thread's own.

        ``inputs`` are as `span` gives them; ``outputs`` are filled when this returns.
        """
        driver, stream = self.driver, self.driver.private()
        with driver.here():
            workspace = self.acquire(stream)
            try:
                if not workspace.ends:
                    what = f"inputs and outputs of {self.plan.model!r}"
                    workspace.ends = [driver.allocate(x.nbytes, stream, what) for x in (*inputs, *outputs)]
                for x, memory in zip(inputs, workspace.ends, strict=False):
                    driver.upload(memory.address, x, stream)
                addresses = [memory.address for memory in workspace.ends]
                self.run_in(workspace, addresses[: len(inputs)], addresses[len(inputs) :], stream)
                for y, address in zip(outputs, addresses[len(inputs) :], strict=True):
                    driver.download(y, address, stream)
            finally:
                self.release(workspace, stream)

    def _without_graphs(self, error: Exception) -> None:
        """Start kernels one by one from now on, after one warning."""
        self.no_graphs = str(error) or type(error).__name__
        warnings.warn(
            f"bslite starts the kernels of {self.plan.model!r} one by one: capturing them failed ({error})",
            RuntimeWarning,
            stacklevel=2,
        )

    def check(self, workspace: Workspace, stream: int) -> None:
        """Raise InputError for the first layer whose step raised a flag, and clear the flags."""
        if workspace.flags is None:
            return
        found = np.zeros((len(self.plan.flags), 2), np.int64)
        self.driver.download(found.view(np.int32), workspace.flags.address, stream)
        raised = np.flatnonzero(found[:, 0])
        if len(raised):
            flag, value = self.plan.flags[raised[0]], int(found[raised[0], 1])
            workspace.clear_flags(len(self.plan.flags), stream)
            raise flag.error(value)

    def acquire(self, stream: int) -> Workspace:
        """A workspace that no other run uses; ``stream`` waits for work of another stream in it."""
        with self._lock:
            fresh = stream not in self._streams
            self._streams.add(stream)
            found = self._idle(stream)
        if fresh:
            for memory in self.constants.values():
                self.driver.used(memory, stream)
        if found is None:
            return Workspace(self, stream)
        if found.stream != stream:
            self.driver.wait(found.event, stream)
        if found.home != stream:
            for memory in (found.arena, *found.ends):
                self.driver.used(memory, stream)
        return found

    def _idle(self, stream: int) -> Workspace | None:
        """A free workspace: this stream's last, else one whose work is done, else the first of many."""
        for i, workspace in enumerate(self._free):
            if workspace.stream == stream:
                return self._free.pop(i)
        for i, workspace in enumerate(self._free):
            if self.driver.passed(workspace.event):
                return self._free.pop(i)
        return self._free.pop(0) if len(self._free) >= MOST_WORKSPACES else None

    def release(self, workspace: Workspace, stream: int) -> None:
        """Give a workspace back, all its work started."""
        workspace.stream = stream
        try:
            self.driver.record(workspace.event, stream)
        except EngineError:  # the stream is gone, its work may still run: the workspace is dropped
            return
        with self._lock:
            self._free.append(workspace)

    def drop_idle(self) -> None:
        """Release workspaces that no run uses."""
        with self._lock:
            self._free.clear()
