"""What the engine needs of a GPU: memory, streams, launches, graphs.

`gpu` implements it for a GPU, `simulated` for numba.cuda's simulator; tests have drivers of their own.
Memory, streams and events are addresses, whether torch, numba or the caller made them.
"""

import abc
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bslite.errors import EngineError
from bslite.explore.gpu import GpuMachine
from bslite.spec import Array


class OutOfMemory(EngineError):
    """The device has no room for what was asked for."""


@dataclass(eq=False)
class Memory:
    """``size`` bytes of a device from ``address`` on, valid as long as this object exists.

    ``owner`` holds the memory: a torch tensor where torch allocated it.
    """

    address: int
    size: int
    owner: Any = None


@dataclass(frozen=True)
class Cells:
    """An array as a kernel takes it: ``count`` cells of ``dtype``."""

    address: int
    dtype: Any
    count: int


class Bound(Protocol):
    """A compiled kernel with its grid, block and arguments."""

    def point(self, argument: int, address: int) -> None:
        """Replace the address of array argument number ``argument``; its count of cells stays."""

    def start(self, stream: int) -> None:
        """Launch the kernel on a stream."""


class Graph(Protocol):
    """Launches that were captured, to be started as one."""

    def start(self, stream: int) -> None:
        """Launch the graph on a stream."""


class HasIdle(Protocol):
    """An object that keeps memory it can do without."""

    def drop_idle(self) -> None:
        """Release the memory that is not in use."""


class Driver(abc.ABC):
    """One device. ``stream`` is the address of a CUDA stream."""

    #: Its number, as torch and the CUDA runtime count.
    device: int
    name: str
    machine: GpuMachine
    #: Whether launches can be captured.
    graphs: bool = False

    def __init__(self) -> None:
        self._idle: weakref.WeakSet[Any] = weakref.WeakSet()

    # -- memory ------------------------------------------------------------------------------------

    @abc.abstractmethod
    def take(self, size: int, stream: int) -> Memory:
        """Memory on a multiple of 256 bytes, for work on ``stream``. OutOfMemory if there is none left."""

    @abc.abstractmethod
    def room(self) -> tuple[int, int]:
        """Bytes that are free, and bytes in all."""

    def allocate(self, size: int, stream: int, what: str = "values") -> Memory:
        """As `take`; where there is no room, memory that is kept but not in use is released first.

        Raises OutOfMemory that says how much was wanted, what for, and how much there is.
        """
        size = max(256, size)
        try:
            return self.take(size, stream)
        except OutOfMemory:
            self.empty()
        try:
            return self.take(size, stream)
        except OutOfMemory:
            free, total = self.room()
            raise OutOfMemory(
                f"{self.name}: {size / 2**20:,.1f} MB wanted for {what}, {free / 2**20:,.1f} MB of "
                f"{total / 2**20:,.0f} MB free"
            ) from None

    def empty(self) -> None:
        """Release all memory that is kept but not in use."""
        for holder in list(self._idle):
            holder.drop_idle()

    def trim(self) -> None:  # noqa: B027
        """Release memory that is kept for objects that no longer exist."""

    def register(self, holder: HasIdle) -> None:
        """Ask ``holder`` to release memory when there is no room, as long as ``holder`` exists."""
        self._idle.add(holder)

    def used(self, memory: Memory, stream: int) -> None:  # noqa: B027  (most need nothing)
        """Note that work on ``stream`` uses memory that was allocated for another."""

    @abc.abstractmethod
    def clear(self, target: int, size: int, stream: int) -> None:
        """Write zeros to ``size`` bytes from an address on."""

    @abc.abstractmethod
    def upload(self, target: int, source: Array, stream: int) -> None:
        """Copy a contiguous array to an address. The array may be changed when this returns."""

    @abc.abstractmethod
    def download(self, target: Array, source: int, stream: int) -> None:
        """Copy from an address to a contiguous array after all work on the stream, and wait for it."""

    # -- work --------------------------------------------------------------------------------------

    @abc.abstractmethod
    def stream(self) -> int:
        """The stream that is current for the caller at this call."""

    def private(self) -> int:
        """A stream that no other thread uses: its copies run beside their kernels."""
        return self.stream()

    @abc.abstractmethod
    def function(self, kernel: str, variant: Mapping[str, Any]) -> Any:
        """A compiled kernel, by the name it has in ``KERNELS`` and its compile-time constants."""

    @abc.abstractmethod
    def bind(
        self,
        function: Any,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: Sequence[Cells | np.generic],
    ) -> Bound:
        """A compiled kernel made ready to launch."""

    def here(self) -> AbstractContextManager[Any]:
        """Makes this the calling thread's device for a while."""
        return nullcontext()

    def capturing(self, stream: int) -> bool:
        """Whether the caller is capturing ``stream`` into a graph."""
        return False

    def unrestricted(self) -> AbstractContextManager[Any]:
        """Allow this thread to allocate and to wait although the caller captures."""
        return nullcontext()

    def capture(self, work: Callable[[int], None], by_torch: bool = False) -> Graph:
        """Capture what ``work`` starts on the stream it is given as a graph; ``by_torch``: it calls torch.

        Raises what ``work`` raises, or EngineError if the work cannot be captured; the capture is over then.
        """
        raise EngineError(f"{self.name} captures nothing")

    # -- events ------------------------------------------------------------------------------------

    def event(self) -> Any:
        """A new event, which is not recorded yet."""
        return None

    def discard(self, event: Any) -> None:  # noqa: B027
        """Release an event, whose work may not be done yet."""

    def record(self, event: Any, stream: int) -> None:  # noqa: B027  (the simulator is done by then)
        """Record the event after all work on the stream."""

    def passed(self, event: Any) -> bool:
        """Whether all work before the event is done."""
        return True

    def wait(self, event: Any, stream: int) -> None:  # noqa: B027
        """Let all further work on the stream wait for the event."""

    def finish(self, stream: int) -> None:  # noqa: B027
        """Wait until all work on the stream is done."""

    def seconds(self, work: Callable[[int], None], repeats: int) -> list[float]:
        """Seconds that each of ``repeats`` runs of ``work`` takes on the device."""
        raise EngineError(f"{self.name} measures nothing")


def span(array: Array) -> Array:
    """The memory that an array's elements, at positive strides, are spread over, as 4-byte cells."""
    if not array.size:
        return np.zeros(0, np.int32)
    reach = 1 + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // array.itemsize
    first = array[(slice(0, 1),) * array.ndim].view(np.int32)
    return np.lib.stride_tricks.as_strided(first, (reach,), (4,))
