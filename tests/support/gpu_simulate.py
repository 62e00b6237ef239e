"""Runs one kernel on NumPy arrays: in the simulator, or on a GPU where there is one."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bslite.engines.cuda.devices import driver_for
from bslite.engines.cuda.driver import Cells
from bslite.kernels.cuda.runtime.device import SIMULATED, cuda
from bslite.kernels.cuda.runtime.kernel import DTYPES, Kernel


def launch(
    kernel: Kernel, grid: tuple[int, ...], block: tuple[int, ...], given: Mapping[str, Any], **variant: Any
) -> dict[str, np.ndarray[Any, Any]]:
    """All arrays after one launch, by name; ``given`` are the kernel's arrays and numbers."""
    assert np.prod(block) <= kernel.threads
    arrays = {n: np.ascontiguousarray(given[n]).reshape(-1).copy() for n in kernel.arrays}
    numbers = {n: given[n] for n in kernel.scalars}
    if SIMULATED:
        on_device = {n: cuda.to_device(a.view(DTYPES[kernel.arrays[n]])) for n, a in arrays.items()}
        kernel.function(**variant)[grid, block, 0, kernel.dynamic(variant)](
            *kernel.arguments({**on_device, **numbers})
        )
        return {n: on_device[n].copy_to_host().view(arrays[n].dtype) for n in arrays}
    driver = driver_for()  # as the engine does it: the same code, loaded and started in the same way
    stream = driver.private()
    with driver.here():
        held = {n: driver.allocate(a.nbytes, stream) for n, a in arrays.items()}
        for n, a in arrays.items():
            driver.upload(held[n].address, a, stream)
        cells = {
            n: Cells(held[n].address, t, arrays[n].nbytes // np.dtype(t).itemsize)
            for n, t in ((n, DTYPES[kind]) for n, kind in kernel.arrays.items())
        }
        bound = driver.bind(
            driver.function(kernel.name, variant), grid, block, kernel.arguments({**cells, **numbers})
        )
        bound.start(stream)
        for n, a in arrays.items():
            driver.download(a, held[n].address, stream)
    return arrays
