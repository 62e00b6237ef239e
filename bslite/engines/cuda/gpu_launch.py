"""What `GpuDriver` starts: launches with their tables of arguments, and captured graphs."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bslite.engines.cuda.driver import Cells

if TYPE_CHECKING:
    from bslite.engines.cuda.gpu import GpuDriver


class Function(NamedTuple):
    """A loaded kernel: the driver's handle; whether its blocks wait for each other, so that they are launched
    together or not at all; bytes of shared memory that a launch gives it (`Kernel.dynamic`).
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
        driver: GpuDriver,
        function: Function,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        arguments: Sequence[Cells | np.generic],
    ) -> None:
        self._driver = driver
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
        self._driver.do(self._start, *self._shape, stream, self._table_at, *self._more)


class GpuGraph:
    """An instantiated graph."""

    def __init__(self, driver: GpuDriver, handle: Any) -> None:
        self._driver, self._handle = driver, handle
        weakref.finalize(self, _destroy_graph, driver._api, driver._context, handle).atexit = False

    def start(self, stream: int) -> None:
        self._driver.do("cuGraphLaunch", self._handle, stream)


class TorchGraph:
    """A graph that torch captured; torch's object keeps the memory that was used in it.

    Launched as any other: torch's own way needs its current stream changed, which takes longer than a small
    layer. Older versions of torch do not hand it out.
    """

    def __init__(self, driver: GpuDriver, graph: Any) -> None:
        self._driver, self._graph = driver, graph
        self._handle = 0
        with suppress(AttributeError, RuntimeError):
            self._handle = int(graph.raw_cuda_graph_exec())

    def start(self, stream: int) -> None:
        if self._handle:
            self._driver.do("cuGraphLaunch", self._handle, stream)
            return
        with self._driver.torch.cuda.stream(self._driver.as_torchs(stream)):
            self._graph.replay()


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


def _three(sizes: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def call_in(api: Any, context: Any, function: str, *arguments: Any) -> None:
    """Call what frees something, in its context; a device that has failed frees all of it anyway."""
    with suppress(Exception):
        api.cuCtxPushCurrent(context)
        try:
            getattr(api, function)(*arguments)
        finally:
            api.cuCtxPopCurrent()


def _destroy_graph(api: Any, context: Any, handle: Any) -> None:
    call_in(api, context, "cuGraphExecDestroy", handle)
