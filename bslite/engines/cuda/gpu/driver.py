"""A real GPU, by way of the CUDA driver's functions.

numba-cuda compiles the kernels (`bslite.kernels.cuda.runtime.compile`); they are loaded and started here,
with ``cuLaunchKernel`` from a table of arguments that is written once, because numba's own launch looks at
types, strides and streams each time, and a network has hundreds. torch allocates the memory where torch has
CUDA, so that both draw on one pool.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from bslite.engines.cuda.driver import Array, Cells, Graph, Memory, OutOfMemory
from bslite.engines.cuda.gpu import copies
from bslite.engines.cuda.gpu.context import NO_TIMING, NOT_READY, GpuContext, code_of
from bslite.engines.cuda.gpu.graphs import captured, captured_by_torch
from bslite.engines.cuda.gpu.launch import Function, GpuLaunch
from bslite.errors import EngineError
from bslite.explore.gpu import GpuMachine

RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: what else this thread does, does not end a capture
DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class GpuDriver(GpuContext):
    """`Driver` of a GPU; see `GpuContext`. ``relaxed``: the mode of capture, as the bindings want it."""

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
        super().__init__(device, api, machine, name, torch)
        self._capability, self._relaxed = capability, relaxed
        self._functions: dict[Any, Function] = {}
        self._torch_streams: list[int] = []  # on which torch captured graphs that are gone

    # -- memory ------------------------------------------------------------------------------------

    def take(self, size: int, stream: int) -> Memory:
        """Memory from torch's caching allocator, else from the driver."""
        if self.torch:
            return self._from_torch(size, stream)
        with self.here():
            address = int(self.do("cuMemAlloc", size))
        memory = Memory(address, size)
        self.destroy_with(memory, "cuMemFree", address)  # waits for all work that may use it
        return memory

    def _from_torch(self, size: int, stream: int) -> Memory:
        torch = self.torch
        try:
            with torch.cuda.stream(self.as_torchs(stream)):
                cells = torch.empty(size, dtype=torch.uint8, device=f"cuda:{self.device}")
        except torch.cuda.OutOfMemoryError as e:
            raise OutOfMemory(f"{self.name}: {e}") from e
        return Memory(cells.data_ptr(), size, cells)

    def room(self) -> tuple[int, int]:
        """As the driver reports it: memory in torch's cache counts as used."""
        with self.here():
            free, total = self.do("cuMemGetInfo")
        return int(free), int(total)

    def empty(self) -> None:
        """Release idle workspaces, then torch's cache."""
        super().empty()
        self.trim()

    def trim(self) -> None:
        """Tell torch to release the memory of graphs that no longer exist."""
        if self.torch:
            self.torch.cuda.empty_cache()

    def used(self, memory: Memory, stream: int) -> None:
        """Tell torch that ``stream`` uses the memory, or it would reuse the memory while work still runs."""
        if memory.owner is not None:
            memory.owner.record_stream(self.as_torchs(stream))

    def clear(self, target: int, size: int, stream: int) -> None:
        """Write zeros without memory of the host, so that a graph can capture it."""
        with self.here():
            self.do("cuMemsetD8Async", target, 0, size, stream)

    def upload(self, target: int, source: Array, stream: int) -> None:
        copies.upload(self, target, source, stream)

    def download(self, target: Array, source: int, stream: int) -> None:
        copies.download(self, target, source, stream)

    # -- work --------------------------------------------------------------------------------------

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
        """A kernel and its table of arguments.

        Raises EngineError if its blocks wait for each other and the GPU has no room for all of them at once;
        the planner avoids that.
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
        """As the driver reports it: a stream that is being captured has a status other than 0."""
        return bool(stream) and int(self.do("cuStreamIsCapturing", stream)) != 0  # the default stream cannot

    @contextmanager
    def unrestricted(self) -> Iterator[None]:
        """Lift the strictest mode of capture, torch's default, which forbids waiting and allocating."""
        with self.here():
            before = self.do("cuThreadExchangeStreamCaptureMode", self._relaxed)
            try:
                yield
            finally:
                self.do("cuThreadExchangeStreamCaptureMode", before)

    def capture(self, work: Callable[[int], None], by_torch: bool = False) -> Graph:
        if not by_torch:
            return captured(self, work, self._relaxed)
        try:
            return self._captured_by_torch(work)
        except self.torch.cuda.OutOfMemoryError:
            self.trim()  # while it captures, torch does not look for what it could free
            return self._captured_by_torch(work)

    def _captured_by_torch(self, work: Callable[[int], None]) -> Graph:
        return captured_by_torch(self, work, self._torch_streams)

    def tensor(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """Float32 memory as one of torch's tensors, which does not own it."""
        return self.torch.as_tensor(Described(address, shape, strides), device=f"cuda:{self.device}")

    # -- events ------------------------------------------------------------------------------------

    def event(self) -> Any:
        """An event that keeps no time."""
        with self.here():
            event = self.do("cuEventCreate", NO_TIMING)
        return event

    def discard(self, event: Any) -> None:
        self.destroy("cuEventDestroy", event)

    def record(self, event: Any, stream: int) -> None:
        with self.here():
            self.do("cuEventRecord", event, stream)

    def passed(self, event: Any) -> bool:
        with self.here():
            try:
                self._api.cuEventQuery(event)
            except Exception as e:
                if code_of(e) == NOT_READY:
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


def _dynamic(kernel: str, variant: Mapping[str, Any]) -> int:
    """Bytes of shared memory that a launch of the kernel gives it."""
    from bslite.kernels.cuda import KERNELS

    return KERNELS[kernel].dynamic(variant)


def _attribute(number: int) -> Any:
    """A function's attribute as the bindings want it."""
    from bslite.kernels.cuda.runtime.device import binding

    return number if binding is None else binding.CUfunction_attribute(number)


class Described:
    """Float32 memory in the words of the CUDA array interface."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape,
            "strides": tuple(4 * s for s in strides),
            "typestr": "<f4",
            "data": (address, False),
            "version": 3,
            "stream": None,
        }
