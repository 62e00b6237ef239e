"""A kernel's launch on a GPU, with its table of arguments."""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bslite.engines.cuda.driver import Cells
from bslite.engines.cuda.gpu.context import GpuContext


class Function(NamedTuple):
    """A loaded kernel: the driver's handle, how its blocks start, and its dynamic shared memory in bytes.

    Blocks that wait for each other are launched together or not at all. `Kernel.dynamic` says how much shared
    memory a launch gives the kernel.
    """

    handle: int
    cooperative: bool = False
    shared: int = 0


class GpuLaunch:
    """The table of a kernel's arguments, as ``cuLaunchKernel`` reads it.

    numba-cuda's kernels take an array of one axis as seven: two pointers that are null, elements, bytes of
    one, address, elements along the axis, bytes between them (``dispatcher._Kernel._prepare_args``).
    """

    def __init__(
        self,
        gpu: GpuContext,
        function: Function,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: Sequence[Cells | np.generic],
    ) -> None:
        self._gpu = gpu
        self._start = "cuLaunchCooperativeKernel" if function.cooperative else "cuLaunchKernel"
        self._more = () if function.cooperative else (0,)  # `extra`: no further options
        self._shape = (function.handle, *_three(grid), *_three(block), function.shared)
        self._cells: list[Any] = []
        self._address: dict[int, Any] = {}
        for i, argument in enumerate(arguments):
            if isinstance(argument, Cells):
                size = np.dtype(argument.dtype).itemsize
                row = [0, 0, argument.count, size, argument.address, argument.count, size]
                added = [ctypes.c_int64(value) for value in row]
                self._address[i] = added[4]
                self._cells += added
            else:
                self._cells.append(np.ctypeslib.as_ctypes_type(argument.dtype)(argument.item()))
        self._table = (ctypes.c_void_p * len(self._cells))(*map(ctypes.addressof, self._cells))
        self._table_at = ctypes.addressof(self._table)

    def point(self, argument: int, address: int) -> None:
        self._address[argument].value = address

    def start(self, stream: int) -> None:
        self._gpu.do(self._start, *self._shape, stream, self._table_at, *self._more)


def _three(sizes: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
