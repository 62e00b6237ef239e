"""A GPU that is numba.cuda's simulator: device memory is the host's, every launch is done when it returns."""

import ctypes
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bslite.engines.cuda.driver import Array, Cells, Driver, Memory
from bslite.explore.gpu import GpuMachine

ALIGN = 256
#: The simulator keeps its state in globals: one launch at a time.
_one = threading.Lock()


def memory_at(address: int, dtype: Any, count: int) -> Array:
    """Memory from an address on, as an array."""
    size = count * np.dtype(dtype).itemsize
    if not size:
        return np.zeros(0, dtype)
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype)


class SimulatedDriver(Driver):
    """One device, number 0, slow, with few threads to a block: each is a thread of Python."""

    device = 0
    name = "numba.cuda's simulator"
    machine = GpuMachine(sms=1, tensor_lanes=0, block_threads=32, memory_bandwidth=4e9, l2_bandwidth=5e9)

    def take(self, size: int, stream: int) -> Memory:
        """Memory filled with NaN, so that a read of memory that no kernel wrote shows."""
        room = np.full(size // 4 + ALIGN // 4 + 1, np.nan, np.float32)
        return Memory(room.ctypes.data + -room.ctypes.data % ALIGN, size, room)

    def room(self) -> tuple[int, int]:
        """The simulator does not know."""
        return 0, 0

    def stream(self) -> int:
        """The only stream."""
        return 0

    def function(self, kernel: str, variant: Mapping[str, Any]) -> Any:
        """The kernel as the simulator runs it."""
        from bslite.kernels.cuda import KERNELS

        return KERNELS[kernel].function(**variant)

    def bind(
        self,
        function: Any,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: Sequence[Cells | np.generic],
    ) -> "_Launch":
        """A simulated kernel."""
        return _Launch(function, grid, block, arguments)

    def clear(self, target: int, size: int, stream: int) -> None:
        """Write zeros at once."""
        memory_at(target, np.uint8, size)[:] = 0

    def upload(self, target: int, source: Array, stream: int) -> None:
        """Copy at once."""
        memory_at(target, source.dtype, source.size)[:] = source.reshape(-1)

    def download(self, target: Array, source: int, stream: int) -> None:
        """Copy at once."""
        target.reshape(-1)[:] = memory_at(source, target.dtype, target.size)


class _Launch:
    """A kernel that runs from its first block to its last when it is started."""

    def __init__(
        self,
        function: Any,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: Sequence[Cells | np.generic],
    ) -> None:
        self._function, self._grid, self._block = function, grid, block
        self._arguments = list(arguments)

    def point(self, argument: int, address: int) -> None:
        old = self._arguments[argument]
        assert isinstance(old, Cells)
        self._arguments[argument] = Cells(address, old.dtype, old.count)

    def start(self, stream: int) -> None:
        from bslite.kernels.cuda.runtime.device import simulated_array

        given = [
            simulated_array(memory_at(a.address, a.dtype, a.count)) if isinstance(a, Cells) else a
            for a in self._arguments
        ]
        with _one, np.errstate(all="ignore"):  # as GPUs do: infinities and NaN without a word
            self._function[self._grid, self._block](*given)
