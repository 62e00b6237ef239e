"""A GPU that is numba.cuda's simulator: device memory is the host's, every launch is done when it returns."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from bslite.engines.cuda.driver import Array, Driver, Memory
from bslite.explore.gpu import GpuMachine

ALIGN = 256
#: The simulator keeps its state in globals: one launch at a time.
_one = threading.Lock()


class SimulatedDriver(Driver):
    """One device, number 0, with few threads to a block: each is a thread of Python."""

    device = 0
    machine = GpuMachine(sms=1, block_threads=32)

    def allocate(self, size: int, stream: int) -> Memory:
        """Memory filled with NaN: who reads what nobody wrote shall be seen."""
        room = np.full(size // 4 + ALIGN // 4, np.nan, np.float32)
        return Memory(room.ctypes.data + -room.ctypes.data % ALIGN, size, room)

    def stream(self) -> int:
        """There is one."""
        return 0

    def launch(
        self, function: Any, grid: tuple[int, ...], block: tuple[int, ...], stream: int, arguments: list[Any]
    ) -> None:
        """Run a kernel from its first block to its last."""
        with _one, np.errstate(all="ignore"):  # as GPUs do: infinities and NaN without a word
            function[grid, block](*arguments)

    def upload(self, target: int, source: Array, stream: int) -> None:
        """Copy."""
        self.cells(target, source.dtype, source.size)._ary[: source.size] = source.reshape(-1)

    def download(self, target: Array, source: int, stream: int) -> None:
        """Copy."""
        target.reshape(-1)[:] = self.cells(source, target.dtype, target.size)._ary[: target.size]
