"""Copies between the host and a GPU, in chunks through page-locked memory."""

import ctypes
from typing import Any

import numpy as np

from bslite.engines.cuda.driver import Array
from bslite.engines.cuda.gpu.context import NO_TIMING, GpuContext

CHUNK = 4 << 20  # bytes of one copy
SLOTS = 2  # chunks of page-locked memory: the host uses one while the device uses the other


def upload(gpu: GpuContext, target: int, source: Array, stream: int) -> None:
    """Copy a contiguous array to an address: the host fills one chunk while the device reads the other."""
    cells = source.reshape(-1).view(np.uint8)
    with gpu.here():
        buffers = _pinned(gpu)
        for i, start in enumerate(range(0, cells.size, CHUNK)):
            part = cells[start : start + CHUNK]
            memory, event = buffers[i % SLOTS]
            gpu.do("cuEventSynchronize", event)  # of the copy before the last: it is free again
            memory[: part.size] = part
            gpu.do("cuMemcpyHtoDAsync", target + start, memory.ctypes.data, part.size, stream)
            gpu.do("cuEventRecord", event, stream)


def download(gpu: GpuContext, target: Array, source: int, stream: int) -> None:
    """Copy to a contiguous array: the device writes one chunk while the host takes the one before."""
    cells = target.reshape(-1).view(np.uint8)
    assert np.shares_memory(cells, target)
    with gpu.here():
        buffers = _pinned(gpu)
        starts = range(0, cells.size, CHUNK)
        for i in range(len(starts) + SLOTS - 1):
            if i < len(starts):
                memory, event = buffers[i % SLOTS]
                gpu.do("cuEventSynchronize", event)  # of an upload, perhaps
                size = min(CHUNK, cells.size - starts[i])
                gpu.do("cuMemcpyDtoHAsync", memory.ctypes.data, source + starts[i], size, stream)
                gpu.do("cuEventRecord", event, stream)
            if 0 <= (done := i - SLOTS + 1) < len(starts):
                memory, event = buffers[done % SLOTS]
                gpu.do("cuEventSynchronize", event)
                part = cells[starts[done] : starts[done] + CHUNK]
                part[:] = memory[: part.size]


def _pinned(gpu: GpuContext) -> list[tuple[Array, Any]]:
    """This thread's chunks of page-locked memory, each with the event of its last copy."""
    own = gpu.mine()
    found: list[tuple[Array, Any]] | None = own.get("pinned")
    if found is None:
        found = []
        for _ in range(SLOTS):
            address = int(gpu.do("cuMemHostAlloc", CHUNK, 0))
            memory = np.ctypeslib.as_array((ctypes.c_uint8 * CHUNK).from_address(address))
            gpu.destroy_with(memory, "cuMemFreeHost", address)
            found.append((memory, gpu.do("cuEventCreate", NO_TIMING)))
        own["pinned"] = found
    return found
