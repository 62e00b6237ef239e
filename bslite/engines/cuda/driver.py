"""What the engine needs of a GPU: memory, streams, launches. A GPU has it, the simulator, and what tests put
in its place.

Memory is addresses, whoever's it is: torch's, numba's, a caller's.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bslite.explore.gpu import GpuMachine

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Memory:
    """``size`` bytes of a device from ``address`` on, there as long as this object is."""

    address: int
    size: int
    owner: Any = None


class Driver(abc.ABC):
    """One device. ``stream`` is a number: the address of a CUDA stream."""

    #: Its number, as torch and the CUDA runtime count.
    device: int
    machine: GpuMachine

    @abc.abstractmethod
    def allocate(self, size: int, stream: int) -> Memory:
        """Memory on a multiple of 256 bytes, to be used on ``stream``. EngineError if there is none left."""

    @abc.abstractmethod
    def stream(self) -> int:
        """The stream that the caller's work is on, now."""

    @abc.abstractmethod
    def launch(
        self, function: Any, grid: tuple[int, ...], block: tuple[int, ...], stream: int, arguments: list[Any]
    ) -> None:
        """Start a compiled kernel."""

    @abc.abstractmethod
    def upload(self, target: int, source: Array, stream: int) -> None:
        """Copy a contiguous array to an address. The array may be changed when this returns."""

    @abc.abstractmethod
    def download(self, target: Array, source: int, stream: int) -> None:
        """Copy to a contiguous array from an address, after all work on the stream; it is there when this
        returns.
        """

    def cells(self, address: int, dtype: Any, count: int) -> Any:
        """Memory as a kernel takes it."""
        from bslite.kernels.cuda.device import array_at

        return array_at(address, dtype, max(1, count))


def span(array: Array) -> Array:
    """The run of memory that an array's elements, at positive strides, are spread over: as 4-byte cells."""
    if not array.size:
        return np.zeros(0, np.int32)
    reach = 1 + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // array.itemsize
    first = array[(slice(0, 1),) * array.ndim].view(np.int32)
    return np.lib.stride_tricks.as_strided(first, (reach,), (4,))
