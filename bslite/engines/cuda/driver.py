"""What the engine needs of a GPU: memory, streams, launches, graphs. A GPU has it (`gpu`), the simulator
(`simulated`), and what tests put in the place of both.

Memory, streams and events are addresses, whoever's they are: torch's, numba's, the caller's.
"""

from __future__ import annotations

import abc
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bslite.errors import EngineError
from bslite.explore.gpu import GpuMachine

Array = npt.NDArray[Any]


class OutOfMemory(EngineError):
    """The device has no room for what was asked for."""


@dataclass(eq=False)
class Memory:
    """``size`` bytes of a device from ``address`` on, there as long as this object is. ``owner`` holds it:
    a torch tensor, where torch allocated it.
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
        """Put an array in the place of argument number ``argument``, of as many cells as were there."""

    def start(self, stream: int) -> None:
        """Launch it."""


class Graph(Protocol):
    """Launches that were captured, to be started as one."""

    def start(self, stream: int) -> None:
        """Launch all of them."""


class HasIdle(Protocol):
    """What keeps memory that it could do without for now."""

    def drop_idle(self) -> None:
        """Let go of it."""


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
        """Bytes that are free, and all there are."""

    def allocate(self, size: int, stream: int, what: str = "values") -> Memory:
        """As `take`; where there is no room, what is kept but not in use is let go of first.

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
        """Let go of all memory that is kept but not in use."""
        for holder in list(self._idle):
            holder.drop_idle()

    def trim(self) -> None:  # noqa: B027
        """Give back what is kept of things that are gone."""

    def register(self, holder: HasIdle) -> None:
        """Ask ``holder`` to let go of memory when it gets short; no longer than it lives."""
        self._idle.add(holder)

    def used(self, memory: Memory, stream: int) -> None:  # noqa: B027  (most need nothing)
        """Note that work on ``stream`` uses memory that was allocated for another."""

    @abc.abstractmethod
    def clear(self, target: int, size: int, stream: int) -> None:
        """Zeros in ``size`` bytes from an address on."""

    @abc.abstractmethod
    def upload(self, target: int, source: Array, stream: int) -> None:
        """Copy a contiguous array to an address. The array may be changed when this returns."""

    @abc.abstractmethod
    def download(self, target: Array, source: int, stream: int) -> None:
        """Copy to a contiguous array from an address, after all work on the stream; it is there when this
        returns.
        """

    # -- work --------------------------------------------------------------------------------------

    @abc.abstractmethod
    def stream(self) -> int:
        """The stream that the caller's work is on, now; never kept."""

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
        """Whether the caller is capturing what happens on ``stream`` into a graph of his own."""
        return False

    def unrestricted(self) -> AbstractContextManager[Any]:
        """Lets the thread make ready what is missing although the caller captures."""
        return nullcontext()

    def capture(self, work: Callable[[int], None], by_torch: bool = False) -> Graph:
        """What ``work`` starts on the stream it is given, as a graph; ``by_torch``: torch is called in it.
        Whatever is raised in it, or EngineError, if it cannot be captured; nothing is being captured then.
        """
        raise EngineError(f"{self.name} captures nothing")

    # -- events ------------------------------------------------------------------------------------

    def event(self) -> Any:
        """A point in a stream's work, still to be recorded."""
        return None

    def discard(self, event: Any) -> None:  # noqa: B027
        """It is needed no longer; work may still be before it."""

    def record(self, event: Any, stream: int) -> None:  # noqa: B027  (the simulator is done by then)
        """Put the event behind all work on the stream."""

    def passed(self, event: Any) -> bool:
        """Whether all work before the event is done."""
        return True

    def wait(self, event: Any, stream: int) -> None:  # noqa: B027
        """Let all further work on the stream wait for the event."""

    def finish(self, stream: int) -> None:  # noqa: B027
        """Until all work on the stream is done."""

    def seconds(self, work: Callable[[int], None], repeats: int) -> list[float]:
        """What each of ``repeats`` runs of ``work`` takes on the device."""
        raise EngineError(f"{self.name} measures nothing")


def span(array: Array) -> Array:
    """The run of memory that an array's elements, at positive strides, are spread over: as 4-byte cells."""
    if not array.size:
        return np.zeros(0, np.int32)
    reach = 1 + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // array.itemsize
    first = array[(slice(0, 1),) * array.ndim].view(np.int32)
    return np.lib.stride_tricks.as_strided(first, (reach,), (4,))
