"""A CUDA driver made of Python: the functions that the engine calls, on the host's memory, kernels in the
simulator. It keeps a diary and can be told to fail; what a real driver leaves undefined, it asserts.
"""

import ctypes
import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bslite.engines.cuda import engine
from bslite.engines.cuda.driver import Cells
from bslite.engines.cuda.gpu.driver import GpuDriver
from bslite.engines.cuda.simulated import SimulatedDriver
from bslite.kernels.cuda import KERNELS
from bslite.kernels.cuda.runtime.compile import Code
from bslite.kernels.cuda.runtime.device import SIMULATED
from bslite.kernels.cuda.runtime.kernel import DTYPES

if not SIMULATED:
    pytest.skip("there is a GPU; NUMBA_ENABLE_CUDASIM=1 runs this, too", allow_module_level=True)

GLOBAL = 0  # CU_STREAM_CAPTURE_MODE_GLOBAL
#: What functions return that do nothing here.
ANSWERS = {
    "get_device_count": 1, "cuMemFreeHost": None, "cuEventDestroy": None, "cuEventElapsedTime": 1.5,
    "cuEventSynchronize": None,
}  # fmt: skip
#: What may wait or allocate: of a thread that has not said it means it, it ends any capture that is under way
#: in the strictest mode, and fails.
UNSAFE = {
    "cuMemAlloc", "cuMemHostAlloc", "cuStreamSynchronize", "cuEventSynchronize", "cuEventQuery",
    "cuModuleLoadData",
}  # fmt: skip


class DriverError(Exception):
    """As numba's CudaAPIError: with the driver's number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class FakeApi:
    """``fail[function]``: the errors that its next calls raise, None for a call that works."""

    is_available = True
    initialization_error = None

    def __init__(self, memory: int = 1 << 30, version: tuple[int, int] = (13, 0)) -> None:
        self.diary: list[tuple[Any, ...]] = []
        self.fail: dict[str, list[Exception | None]] = {}
        self.kernels: dict[int, Any] = {}
        self.gpu: Any = None
        self.memory, self.version = memory, version
        self.allocated: dict[int, Any] = {}
        self.capturing: dict[int, list[Any]] = {}
        self.graphs: dict[int, list[Any]] = {}
        self._thread = threading.local()
        self._one = threading.RLock()
        self._host: list[Any] = []
        self.streams: set[int] = {0, 71, 72}  # the default one and two of torch's
        self.pending: set[int] = set()  # events that have not passed
        self.modes: dict[int, int] = {}  # of the captures under way, by stream
        self.shared: dict[int, int] = {}  # bytes that a function may be given
        self.on_sm = 1  # blocks that an SM has room for
        self._next = 1000

    def __getattr__(self, name: str) -> Any:
        function = getattr(type(self), "_" + name, None)
        if function is None and name not in ANSWERS:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            with self._one:
                self.diary.append((name, *arguments))
                if self.fail.get(name) and (error := self.fail[name].pop(0)) is not None:
                    raise error
                if name in UNSAFE and self._mode == GLOBAL and GLOBAL in self.modes.values():
                    raise DriverError(900, f"{name}: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED")
                return function(self, *arguments) if function else ANSWERS[name]

        return call

    def calls(self, name: str) -> list[tuple[Any, ...]]:
        """Arguments of all calls of a function so far."""
        return [entry[1:] for entry in self.diary if entry[0] == name]

    @property
    def contexts(self) -> list[int]:
        """The calling thread's, the current one last."""
        return self._thread.__dict__.setdefault("contexts", [])

    @property
    def _mode(self) -> int:
        """In which the calling thread lets what is unsafe interfere with captures."""
        return getattr(self._thread, "mode", GLOBAL)

    @property
    def used(self) -> int:
        """Bytes allocated."""
        return sum(map(len, self.allocated.values()))

    def new(self) -> int:
        self._next += 1
        return self._next

    # -- what describes it -------------------------------------------------------------------------

    def get_version(self) -> tuple[int, int]:
        return self.version

    # -- contexts, memory --------------------------------------------------------------------------

    def _cuThreadExchangeStreamCaptureMode(self, mode: int) -> int:
        before, self._thread.mode = self._mode, mode
        return before

    def _cuDevicePrimaryCtxRetain(self, device: int) -> int:
        return 500 + device

    def _cuCtxGetCurrent(self) -> int:
        return self.contexts[-1] if self.contexts else 0

    def _cuCtxPushCurrent(self, context: int) -> None:
        self.contexts.append(context)

    def _cuCtxPopCurrent(self) -> int:
        return self.contexts.pop()

    def _cuMemAlloc(self, size: int) -> int:
        if self.used + size > self.memory:
            raise DriverError(2, "CUDA_ERROR_OUT_OF_MEMORY")
        room = np.full(size // 4 + 128, np.nan, np.float32)
        address = int(room.ctypes.data + -room.ctypes.data % 256)
        self.allocated[address] = room.view(np.uint8)
        return address

    def _cuMemFree(self, address: int) -> None:
        del self.allocated[address]

    def _cuMemGetInfo(self) -> tuple[int, int]:
        return self.memory - self.used, self.memory

    def _cuMemHostAlloc(self, size: int, flags: int) -> int:
        self._host.append(np.zeros(size, np.uint8))
        return int(self._host[-1].ctypes.data)

    def _cuMemcpyHtoDAsync(self, target: int, source: int, size: int, stream: int) -> None:
        self._ready(stream)
        assert stream not in self.capturing, "the graph would read the host's memory, whatever is there then"
        ctypes.memmove(target, source, size)

    def _cuMemsetD8Async(self, target: int, value: int, size: int, stream: int) -> None:
        self._ready(stream)
        self._do(lambda: ctypes.memset(target, value, size), stream)

    _cuMemcpyDtoHAsync = _cuMemcpyHtoDAsync

    # -- streams, events ---------------------------------------------------------------------------

    def _ready(self, stream: int) -> None:
        assert self.contexts, "no context is current"
        if stream not in self.streams:
            raise DriverError(400, "CUDA_ERROR_INVALID_HANDLE")

    def _cuStreamCreate(self, flags: int) -> int:
        assert flags == 1, "a stream that waits for the default stream"
        self.streams.add(stream := self.new())
        return stream

    def _cuStreamIsCapturing(self, stream: int) -> int:
        return int(stream in self.capturing)

    def _cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        self._ready(stream)

    def _cuStreamSynchronize(self, stream: int) -> None:
        self._ready(stream)
        assert stream not in self.capturing

    def _cuEventCreate(self, flags: int) -> int:
        return self.new()

    def _cuEventRecord(self, event: int, stream: int) -> None:
        self._ready(stream)
        assert stream not in self.capturing

    def _cuEventQuery(self, event: int) -> None:
        if event in self.pending:
            raise DriverError(600, "CUDA_ERROR_NOT_READY")

    # -- modules, launches, graphs --------------------------------------------------------------------------

    def _cuModuleLoadData(self, image: bytes) -> str:
        assert self.contexts
        assert isinstance(image, bytes)
        return "module"

    def _cuModuleGetFunction(self, module: str, entry: bytes) -> int:
        assert module == "module"
        return int(entry)

    def _cuFuncSetAttribute(self, handle: int, attribute: int, value: int) -> None:
        assert attribute == 8
        assert self.contexts
        self.shared[handle] = value

    def _cuOccupancyMaxActiveBlocksPerMultiprocessor(self, handle: int, threads: int, shared: int) -> int:
        assert self.contexts
        assert shared == self.shared.get(handle, 0)
        return self.on_sm

    def _cuLaunchKernel(self, handle: int, *rest: int) -> None:
        *shape, shared, stream, table, extra = rest
        assert extra == 0
        self._cuLaunchCooperativeKernel(handle, *shape, shared, stream, table)

    def _cuLaunchCooperativeKernel(self, handle: int, *rest: int) -> None:
        *shape, shared, stream, table = rest
        assert shared == self.shared.get(handle, 0)
        self._ready(stream)
        kernel, function = self.kernels[handle]
        given = list(read_table(kernel, table))  # as they are now
        bound = SimulatedDriver().bind(function, tuple(shape[:3]), tuple(shape[3:]), given)
        self._do(lambda: bound.start(0), stream)

    def _do(self, work: Any, stream: int) -> None:
        if stream in self.capturing:
            self.capturing[stream].append(work)
            return
        # A collection in one of the simulator's threads may finalise what calls the driver, whose lock this
        # thread holds until they end.
        collects = gc.isenabled()
        gc.disable()
        try:
            work()
        finally:
            if collects:
                gc.enable()

    def _cuStreamBeginCapture(self, stream: int, mode: Any) -> None:
        self._ready(stream)
        assert stream
        assert stream not in self.capturing
        self.capturing[stream] = []
        self.modes[stream] = mode

    def _cuStreamEndCapture(self, stream: int) -> int:
        del self.modes[stream]
        self.graphs[graph := self.new()] = self.capturing.pop(stream)
        return graph

    def _cuGraphInstantiate(self, graph: int, flags: int) -> int:
        self.graphs[made := self.new()] = list(self.graphs[graph])
        return made

    def _cuGraphDestroy(self, graph: int) -> None:
        del self.graphs[graph]

    _cuGraphExecDestroy = _cuGraphDestroy

    def _cuGraphLaunch(self, graph: int, stream: int) -> None:
        self._ready(stream)
        for work in self.graphs[graph]:
            work()


def read_table(kernel: Any, table: int) -> Iterator[Any]:
    """The arguments that a table of pointers holds, as a kernel of these types takes them from it."""
    pointers = iter((ctypes.c_void_p * 256).from_address(table))

    def read(kind: Any) -> Any:
        return kind.from_address(next(pointers)).value

    for kind in kernel.arrays.values():
        row = [read(ctypes.c_int64) for _ in range(7)]
        size = np.dtype(DTYPES[kind]).itemsize
        assert row[:2] == [0, 0]
        assert (row[3], row[6]) == (size, size)
        assert row[2] == row[5] > 0
        assert row[4] % size == 0, "misaligned"
        yield Cells(row[4], DTYPES[kind], row[2])
    for kind in kernel.scalars.values():
        yield np.dtype(kind).type(read(np.ctypeslib.as_ctypes_type(kind)))


class FakeGpu(GpuDriver):
    """A `GpuDriver` on a `FakeApi`; kernels by the simulator's functions."""

    def __init__(self, api: FakeApi, torch: Any = None) -> None:
        super().__init__(0, api, SimulatedDriver.machine, "fake", (9, 0), torch)

    def code(self, kernel: str, variant: Any) -> Any:
        number = len(self._api.kernels) + 1
        self._api.kernels[number] = KERNELS[kernel], KERNELS[kernel].function(**variant)
        return Code(b"module", str(number))


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    """A fake driver, and ``backend="cuda"`` on a GPU that has it."""
    fake = FakeApi()
    gpu = FakeGpu(fake)
    monkeypatch.setattr(engine, "driver_for", lambda device=0: gpu)
    fake.gpu = gpu
    return fake
