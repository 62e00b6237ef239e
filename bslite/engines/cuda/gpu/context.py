"""A GPU's primary context, through the CUDA driver's functions: calls and their errors, streams, torch."""

import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from bslite.engines.cuda.driver import Driver, OutOfMemory
from bslite.errors import EngineError
from bslite.explore.gpu import GpuMachine

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: waits for nothing on the default stream
NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING
OUT_OF_MEMORY, NOT_READY = 2, 600  # CUDA_ERROR_...
#: Of a kernel that did what it must not: addresses (700, 714 to 718), time (702), traps (710, 719).
FATAL = (700, 702, 710, 714, 715, 716, 717, 718, 719)
LOST = ", of this call or an earlier one; nothing works on the device in this process any more"


class GpuContext(Driver):
    """Device number ``device``. ``api`` has the driver's functions, which raise errors that have a ``code``.

    ``torch``: the package, or None; by default torch, as soon as it has been imported and has CUDA.
    """

    def __init__(self, device: int, api: Any, machine: GpuMachine, name: str, torch: Any) -> None:
        super().__init__()
        self.device, self.machine, self.name = device, machine, f"cuda:{device} ({name})"
        self._api, self._torch_given = api, torch
        self._torch_found: Any = None
        self._context = self.do("cuDevicePrimaryCtxRetain", device)
        self._own = threading.local()
        self._spare: list[dict[str, Any]] = []  # of threads that ended
        self._lock = threading.RLock()

    def do(self, function: str, *arguments: Any) -> Any:
        """Call one of the driver's functions. EngineError if it fails, OutOfMemory for that."""
        try:
            return getattr(self._api, function)(*arguments)
        except Exception as e:
            code = code_of(e)
            if code is None and "cudadrv" not in type(e).__module__:
                raise  # no fault of the device's
            kind = OutOfMemory if code == OUT_OF_MEMORY else EngineError
            raise kind(f"{self.name}: {e}{LOST if code in FATAL else ''}") from e

    def destroy(self, function: str, thing: Any) -> None:
        """Call a function that frees ``thing``, from any thread; its errors are ignored."""
        _destroy(self._api, self._context, function, thing)

    def destroy_with(self, owner: Any, function: str, thing: Any) -> None:
        """`destroy` when ``owner`` is collected; not when the process ends."""
        weakref.finalize(owner, _destroy, self._api, self._context, function, thing).atexit = False

    @contextmanager
    def here(self) -> Iterator[None]:
        """Make the device's primary context, which numba and torch use too, the thread's current one."""
        if int(self.do("cuCtxGetCurrent")) == int(self._context):
            yield
            return
        self.do("cuCtxPushCurrent", self._context)
        try:
            yield
        finally:
            self.do("cuCtxPopCurrent")

    # -- torch -------------------------------------------------------------------------------------

    @property
    def torch(self) -> Any:
        """The package, if it is to allocate memory and to say which stream is current."""
        if self._torch_given != "if imported":
            return self._torch_given
        if self._torch_found is None and (found := sys.modules.get("torch")) is not None:
            self._torch_found = (found if found.cuda.is_available() else False,)
        return self._torch_found[0] if self._torch_found else None

    def as_torchs(self, stream: int) -> Any:
        """The stream as one of torch's. 0 is the address of the default stream; ``ExternalStream`` takes it
        for no stream given, and makes another one.
        """
        cuda = self.torch.cuda
        if not stream:
            return cuda.default_stream(self.device)
        return cuda.ExternalStream(stream, device=self.device)

    # -- streams -----------------------------------------------------------------------------------

    def stream(self) -> int:
        """torch's current stream in this thread; without torch, one of the thread's own."""
        if self.torch:
            return int(self.torch.cuda.current_stream(self.device).cuda_stream)
        return self.private()

    def private(self) -> int:
        """A stream of the thread's own."""
        return self.side("compute")

    def side(self, name: str) -> int:
        """The stream of this thread's own that goes by ``name``, made on first use."""
        own = self.mine()
        if name not in own:
            with self.here():
                own[name] = int(self.do("cuStreamCreate", NON_BLOCKING))
        stream: int = own[name]
        return stream

    def mine(self) -> dict[str, Any]:
        """This thread's streams and pinned memory, taken over from a thread that has ended if there is one.

        None of them is ever destroyed: torch's allocator goes on asking streams that used its memory.
        """
        if not hasattr(self._own, "things"):
            with self._lock:
                self._own.things = self._spare.pop() if self._spare else {}
            self._own.end = _End()
            weakref.finalize(self._own.end, self._spare.append, self._own.things).atexit = False
        things: dict[str, Any] = self._own.things
        return things


class _End:
    """An object that is collected when its thread ends."""


def code_of(error: Exception) -> int | None:
    """The number of a driver's error."""
    code = getattr(error, "code", None)
    return None if code is None else int(code)


def _destroy(api: Any, context: Any, function: str, thing: Any) -> None:
    with suppress(Exception):  # a device that has failed frees everything anyway
        api.cuCtxPushCurrent(context)
        try:
            getattr(api, function)(thing)
        finally:
            api.cuCtxPopCurrent()
