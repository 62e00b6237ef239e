"""Runs one kernel on NumPy arrays, by its PTX."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bslite.kernels.cuda.runtime.kernel import DTYPES, Kernel
from support.ptx.compiler import program_of
from support.ptx.machine import Counted, Region
from support.ptx.machine import launch as run


def table(kernel: Kernel, given: Mapping[str, tuple[int, int]], numbers: Mapping[str, Any]) -> list[Any]:
    """Arguments as numba-cuda's kernels take them: an array, (address, cells) here, is seven."""
    made: list[Any] = []
    for name, kind in kernel.arrays.items():
        address, count = given[name]
        size = np.dtype(DTYPES[kind]).itemsize
        made += [0, 0, count, size, address, count, size]
    for name, kind in kernel.scalars.items():
        made.append(float(numbers[name]) if kind[0] == "f" else int(numbers[name]))
    return made


def launch(
    kernel: Kernel,
    grid: Sequence[int],
    block: Sequence[int],
    given: Mapping[str, Any],
    counted: Counted | None = None,
    seed: int | None = None,
    **variant: Any,
) -> dict[str, np.ndarray[Any, Any]]:
    """All arrays after one launch, by name; ``given`` are the kernel's arrays and numbers."""
    assert np.prod(block) <= kernel.threads
    program = program_of(kernel.name, variant)
    arrays = {n: aligned(np.ascontiguousarray(given[n]).reshape(-1)) for n in kernel.arrays}
    cells = {
        n: (a.ctypes.data, a.nbytes // np.dtype(DTYPES[kernel.arrays[n]]).itemsize) for n, a in arrays.items()
    }
    run(
        program, three(grid), three(block), table(kernel, cells, given),
        [Region(a.ctypes.data, a.nbytes) for a in arrays.values()],
        together=bool(variant.get("together")), counted=counted, seed=seed,
    )  # fmt: skip
    return arrays


def three(sizes: Sequence[int]) -> tuple[int, int, int]:
    """A grid or block with all its axes."""
    x, y, z = (*map(int, sizes), 1, 1)[:3]
    return x, y, z


def aligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy that begins on a multiple of 256 bytes, as a GPU's memory does."""
    room = np.zeros(array.nbytes + 256, np.uint8)
    start = -room.ctypes.data % 256
    made = room[start : start + array.nbytes].view(array.dtype)
    made[:] = array
    return made
