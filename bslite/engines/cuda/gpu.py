"""A real GPU, by way of the CUDA driver's functions.

numba-cuda compiles the kernels (`bslite.kernels.cuda.runtime.compile`); they are loaded and started here,
with ``cuLaunchKernel`` from a table of arguments that is written once, because numba's own launch looks at
types, strides and streams each time, and a network has hundreds. torch allocates the memory where torch has
CUDA, so that both draw on one pool.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from bslite.engines.cuda.driver import Array, Cells, Driver, Graph, Memory, OutOfMemory
from bslite.engines.cuda.gpu_launch import Described, Function, GpuGraph, GpuLaunch, TorchGraph, call_in
from bslite.errors import EngineError
from bslite.explore.gpu import GpuMachine

CHUNK = 4 << 20  # bytes of one copy to or from the host
SLOTS = 2  # pinned buffers of so much: one is filled while the other is under way
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: what else this thread does, does not end a capture
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: waits for nothing on the default stream
NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
OUT_OF_MEMORY, NOT_READY = 2, 600  # CUDA_ERROR_...
#: Of a kernel that did what it must not: addresses (700, 714 to 718), time (702), traps (710, 719).
FATAL = (700, 702, 710, 714, 715, 716, 717, 718, 719)
LOST = ", of this call or an earlier one; nothing works on the device in this process any more"
_torch_captures = threading.Lock()


class GpuDriver(Driver):
    """Device number ``device``. ``api`` has the driver's functions, which raise what has a ``code``.

    ``torch``: the package, or None; by default torch, as soon as it has been imported and has CUDA.
    ``relaxed``: the mode of capture, as the bindings want it.
    """

    graphs = True

    def __init__(
        self,
        device: int,
        api: Any,
        machine: GpuMachine,
        name: str,
        capability: tuple[int, int],
        torch: Any = "if imported",
        relaxed: Any = RELAXED,
    ) -> None:
        super().__init__()
        self._capability, self._relaxed = capability, relaxed
        self._functions: dict[Any, Function] = {}
        self._lock = threading.RLock()
        self.device, self.machine, self.name = device, machine, f"cuda:{device} ({name})"
        self._api, self._torch_given = api, torch
        self._torch_found: Any = None
        self._context = self.do("cuDevicePrimaryCtxRetain", device)
        self._own = threading.local()
        self._spare: list[dict[str, Any]] = []  # of threads that ended
        self._torch_streams: list[int] = []  # that torch captured a graph on which is gone

    def do(self, function: str, *arguments: Any) -> Any:
        """Call one of the driver's functions. EngineError if it fails, OutOfMemory for that."""
        try:
            return getattr(self._api, function)(*arguments)
        except Exception as e:
            code = _code(e)
            if code is None and "cudadrv" not in type(e).__module__:
                raise  # no fault of the device's
            kind = OutOfMemory if code == OUT_OF_MEMORY else EngineError
            raise kind(f"{self.name}: {e}{LOST if code in FATAL else ''}") from e

    @property
    def torch(self) -> Any:
        """The package, if it is to allocate memory and to say which stream is current."""
        if self._torch_given != "if imported":
            return self._torch_given
        if self._torch_found is None and (found := sys.modules.get("torch")) is not None:
            self._torch_found = (found if found.cuda.is_available() else False,)
        return self._torch_found[0] if self._torch_found else None

    @contextmanager
    def here(self) -> Iterator[None]:
        """The device's primary context, which is numba's and torch's too, made the thread's."""
        if int(self.do("cuCtxGetCurrent")) == int(self._context):
            yield
            return
        self.do("cuCtxPushCurrent", self._context)
        try:
            yield
        finally:
            self.do("cuCtxPopCurrent")

    # -- memory ------------------------------------------------------------------------------------

    def take(self, size: int, stream: int) -> Memory:
        """From torch's caching allocator, else the driver's own."""
        if self.torch:
            return self._from_torch(size, stream)
        with self.here():
            address = int(self.do("cuMemAlloc", size))
        memory = Memory(address, size)
        weakref.finalize(memory, _free, self._api, self._context, address).atexit = False
        return memory

    def _from_torch(self, size: int, stream: int) -> Memory:
        torch = self.torch
        try:
            with torch.cuda.stream(self.as_torchs(stream)):
                cells = torch.empty(size, dtype=torch.uint8, device=f"cuda:{self.device}")
        except torch.cuda.OutOfMemoryError as e:
            raise OutOfMemory(f"{self.name}: {e}") from e
        return Memory(cells.data_ptr(), size, cells)

    def as_torchs(self, stream: int) -> Any:
        """The stream as one of torch's. 0 is the default stream's address, and to ``ExternalStream`` means
        that none is given: it makes any other of that.
        """
        cuda = self.torch.cuda
        if not stream:
            return cuda.default_stream(self.device)
        return cuda.ExternalStream(stream, device=self.device)

    def room(self) -> tuple[int, int]:
        """As the driver says: what torch keeps in its cache is not free."""
        with self.here():
            free, total = self.do("cuMemGetInfo")
        return int(free), int(total)

    def empty(self) -> None:
        """Workspaces that nobody uses, then torch's cache."""
        super().empty()
        self.trim()

    def trim(self) -> None:
        """torch keeps the memory of graphs that are gone until it is told."""
        if self.torch:
            self.torch.cuda.empty_cache()

    def used(self, memory: Memory, stream: int) -> None:
        """torch gives memory to others as soon as it is let go of, unless it knows of streams that use it."""
        if memory.owner is not None:
            memory.owner.record_stream(self.as_torchs(stream))

    def clear(self, target: int, size: int, stream: int) -> None:
        """No memory of the host's takes part, so that it can be captured, too."""
        with self.here():
            self.do("cuMemsetD8Async", target, 0, size, stream)

    def upload(self, target: int, source: Array, stream: int) -> None:
        """Through pinned memory, in chunks: the host fills one while the device reads the other."""
        cells = source.reshape(-1).view(np.uint8)
        with self.here():
            buffers = self._pinned()
            for i, start in enumerate(range(0, cells.size, CHUNK)):
                part = cells[start : start + CHUNK]
                memory, event = buffers[i % SLOTS]
                self.do("cuEventSynchronize", event)  # of the copy before the last: it is free again
                memory[: part.size] = part
                self.do("cuMemcpyHtoDAsync", target + start, memory.ctypes.data, part.size, stream)
                self.do("cuEventRecord", event, stream)

    def download(self, target: Array, source: int, stream: int) -> None:
        """Likewise: the device writes one chunk while the host takes the one before."""
        cells = target.reshape(-1).view(np.uint8)
        assert np.shares_memory(cells, target)
        with self.here():
            buffers = self._pinned()
            starts = range(0, cells.size, CHUNK)
            for i in range(len(starts) + SLOTS - 1):
                if i < len(starts):
                    memory, event = buffers[i % SLOTS]
                    self.do("cuEventSynchronize", event)  # of an upload, perhaps
                    size = min(CHUNK, cells.size - starts[i])
                    self.do("cuMemcpyDtoHAsync", memory.ctypes.data, source + starts[i], size, stream)
                    self.do("cuEventRecord", event, stream)
                if 0 <= (done := i - SLOTS + 1) < len(starts):
                    memory, event = buffers[done % SLOTS]
                    self.do("cuEventSynchronize", event)
                    part = cells[starts[done] : starts[done] + CHUNK]
                    part[:] = memory[: part.size]

    def _pinned(self) -> list[tuple[Array, Any]]:
        """This thread's chunks of page-locked memory, each with the event of its last copy."""
        own = self._mine()
        found: list[tuple[Array, Any]] | None = own.get("pinned")
        if found is None:
            found = []
            for _ in range(SLOTS):
                address = int(self.do("cuMemHostAlloc", CHUNK, 0))
                memory = np.ctypeslib.as_array((ctypes.c_uint8 * CHUNK).from_address(address))
                weakref.finalize(memory, _free_host, self._api, self._context, address).atexit = False
                found.append((memory, self.do("cuEventCreate", NO_TIMING)))
            own["pinned"] = found
        return found

    def _mine(self) -> dict[str, Any]:
        """This thread's streams and pinned memory: those of one that ended, if there are. Nothing of them is
        ever destroyed, because torch's allocator goes on asking streams that its memory was used on.
        """
        if not hasattr(self._own, "things"):
            with self._lock:
                self._own.things = self._spare.pop() if self._spare else {}
            self._own.end = _End()
            weakref.finalize(self._own.end, self._spare.append, self._own.things).atexit = False
        things: dict[str, Any] = self._own.things
        return things

    # -- work --------------------------------------------------------------------------------------

    def stream(self) -> int:
        """torch's current stream in this thread; without torch, one of the thread's own."""
        if self.torch:
            return int(self.torch.cuda.current_stream(self.device).cuda_stream)
        return self.private()

    def private(self) -> int:
        """A stream of the thread's own."""
        return self._side("compute")

    def _side(self, name: str) -> int:
        """A stream of this thread's own."""
        own = self._mine()
        if name not in own:
            with self.here():
                own[name] = int(self.do("cuStreamCreate", NON_BLOCKING))
        stream: int = own[name]
        return stream

    def function(self, kernel: str, variant: Mapping[str, Any]) -> Any:
        """The driver's handle of a kernel, and how it is to be started."""
        key = kernel, tuple(sorted(variant.items()))
        with self._lock:
            if key not in self._functions:
                try:
                    code = self.code(kernel, variant)
                except Exception as e:  # a compiler that is missing, or too old for the device
                    why = f"{type(e).__name__}: {e}"
                    raise EngineError(f"{self.name}: kernel {kernel!r} cannot be compiled ({why})") from e
                with self.here():
                    module = self.do("cuModuleLoadData", code.image)
                    handle = self.do("cuModuleGetFunction", module, code.entry.encode())
                made = Function(int(handle), bool(variant.get("together")), _dynamic(kernel, variant))
                if made.shared:  # more than 48 KB of shared memory are to be asked for
                    with self.here():
                        self.do("cuFuncSetAttribute", made.handle, _attribute(DYNAMIC_SHARED), made.shared)
                self._functions[key] = made
            return self._functions[key]

    def code(self, kernel: str, variant: Mapping[str, Any]) -> Any:
        """A kernel's machine code for this device."""
        from bslite.kernels.cuda.runtime.compile import code_of

        return code_of(kernel, self._capability, variant)

    def bind(
        self,
        function: Function,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: Sequence[Cells | np.generic],
    ) -> GpuLaunch:
        """A kernel and its table of arguments. EngineError if its blocks wait for each other, and not all of
        them find room on the GPU at once (the planner sees to it that they do).
        """
        if function.cooperative:
            blocks, threads = math.prod(grid), math.prod(block)
            asked = function.handle, threads, function.shared
            with self.here():
                on_sm = int(self.do("cuOccupancyMaxActiveBlocksPerMultiprocessor", *asked))
            if blocks > (room := on_sm * self.machine.sms):
                raise EngineError(
                    f"{self.name}: {blocks} blocks of {threads} threads and {function.shared} bytes of "
                    f"shared memory wait for each other, {room} have room"
                )
        return GpuLaunch(self, function, grid, block, arguments)

    def capturing(self, stream: int) -> bool:
        """Asked of the driver: a stream that is being captured has a status other than 0."""
        return bool(stream) and int(self.do("cuStreamIsCapturing", stream)) != 0  # the default stream cannot

    @contextmanager
    def unrestricted(self) -> Iterator[None]:
        """A caller who captures in CUDA's strictest mode, torch's default, forbids this thread whatever might
        wait or allocate, on any stream.
        """
        with self.here():
            before = self.do("cuThreadExchangeStreamCaptureMode", self._relaxed)
            try:
                yield
            finally:
                self.do("cuThreadExchangeStreamCaptureMode", before)

    def capture(self, work: Callable[[int], None], by_torch: bool = False) -> Graph:
        """On a stream that nothing runs on. If that fails, capture is ended and the stream given up."""
        if by_torch:
            try:
                return self._captured_by_torch(work)
            except self.torch.cuda.OutOfMemoryError:
                self.trim()  # while it captures, torch does not look for what it could free
                return self._captured_by_torch(work)
        stream = self._side("capture")
        with self.here():
            self.do("cuStreamBeginCapture", stream, self._relaxed)
            try:
                work(stream)
            except BaseException:
                del self._mine()["capture"]
                with suppress(EngineError):  # it says again what went wrong
                    graph = self.do("cuStreamEndCapture", stream)
                    if int(graph):
                        self.do("cuGraphDestroy", graph)
                raise
            try:
                graph = self.do("cuStreamEndCapture", stream)
            except EngineError:
                del self._mine()["capture"]
                raise
            try:
                return GpuGraph(self, self.do("cuGraphInstantiate", graph, 0))
            finally:
                self.do("cuGraphDestroy", graph)

    def _captured_by_torch(self, work: Callable[[int], None]) -> Graph:
        """torch's allocator has to know, so torch captures: one at a time, more it does not allow.

        Not by ``torch.cuda.graph``, which waits for the device and empties torch's cache before each.
        Nothing is forbidden meanwhile: a thread's first call of a library allocates, and garbage may be
        collected. Each graph has a capturing stream for as long as it lives: torch keeps a workspace of
        cuBLAS's for every stream, and two graphs that may run at the same time must not share one.
        """
        torch = self.torch
        graph = torch.cuda.CUDAGraph()
        with self._lock:
            stream = self._torch_streams.pop() if self._torch_streams else 0
        with _torch_captures, self.here():
            torch.cuda.current_blas_handle()  # this thread's, made now if there is none
            stream = stream or int(self.do("cuStreamCreate", NON_BLOCKING))
            with torch.cuda.stream(self.as_torchs(stream)):
                try:
                    graph.capture_begin(capture_error_mode="relaxed")
                    work(stream)
                except BaseException:
                    with suppress(Exception):  # it says again what went wrong
                        graph.capture_end()
                    raise  # the stream is given up
                graph.capture_end()
        made = TorchGraph(self, graph)
        weakref.finalize(made, self._torch_streams.append, stream).atexit = False
        return made

    def tensor(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """Float32 memory as one of torch's tensors, which does not own it."""
        return self.torch.as_tensor(Described(address, shape, strides), device=f"cuda:{self.device}")

    # -- events ------------------------------------------------------------------------------------

    def event(self) -> Any:
        """One that keeps no time."""
        with self.here():
            event = self.do("cuEventCreate", NO_TIMING)
        return event

    def discard(self, event: Any) -> None:
        call_in(self._api, self._context, "cuEventDestroy", event)

    def record(self, event: Any, stream: int) -> None:
        with self.here():
            self.do("cuEventRecord", event, stream)

    def passed(self, event: Any) -> bool:
        with self.here():
            try:
                self._api.cuEventQuery(event)
            except Exception as e:
                if _code(e) == NOT_READY:
                    return False
                raise EngineError(f"{self.name}: {e}") from e
        return True

    def wait(self, event: Any, stream: int) -> None:
        with self.here():
            self.do("cuStreamWaitEvent", stream, event, 0)

    def finish(self, stream: int) -> None:
        with self.here():
            self.do("cuStreamSynchronize", stream)

    def seconds(self, work: Callable[[int], None], repeats: int) -> list[float]:
        """Between events before and after each run, on a stream of this thread's own."""
        stream = self.private()
        with self.here():
            events = [self.do("cuEventCreate", 0) for _ in range(repeats + 1)]
            try:
                self.do("cuEventRecord", events[0], stream)
                for event in events[1:]:
                    work(stream)
                    self.do("cuEventRecord", event, stream)
                self.do("cuEventSynchronize", events[-1])
                pairs = itertools.pairwise(events)
                return [1e-3 * float(self.do("cuEventElapsedTime", a, b)) for a, b in pairs]
            finally:
                for event in events:
                    self.do("cuEventDestroy", event)


class _End:
    """What goes when a thread ends."""


def _dynamic(kernel: str, variant: Mapping[str, Any]) -> int:
    """Bytes of shared memory that a launch of the kernel gives it."""
    from bslite.kernels.cuda import KERNELS

    return KERNELS[kernel].dynamic(variant)


def _attribute(number: int) -> Any:
    """A function's attribute as the bindings want it."""
    from bslite.kernels.cuda.runtime.device import binding

    return number if binding is None else binding.CUfunction_attribute(number)


def _code(error: Exception) -> int | None:
    """The number of a driver's error."""
    code = getattr(error, "code", None)
    return None if code is None else int(code)


def _free(api: Any, context: Any, address: int) -> None:
    call_in(api, context, "cuMemFree", address)  # waits for all work that may use it


def _free_host(api: Any, context: Any, address: int) -> None:
    call_in(api, context, "cuMemFreeHost", address)
