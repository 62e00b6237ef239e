"""Runs one kernel on NumPy arrays: in the simulator, or on a GPU where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bslite.kernels.cuda.device import cuda
from bslite.kernels.cuda.kernel import DTYPES, Kernel


def launch(
    kernel: Kernel,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    given: Mapping[str, Any],
    **variant: Any,
) -> dict[str, np.ndarray[Any, Any]]:
    """All arrays after one launch, by name; ``given`` are the kernel's arrays and numbers."""
    assert np.prod(block) <= kernel.threads
    arrays = {n: np.ascontiguousarray(given[n]).reshape(-1).copy() for n in kernel.arrays}
    on_device = {n: cuda.to_device(a.view(DTYPES[kernel.arrays[n]])) for n, a in arrays.items()}
    numbers = {n: given[n] for n in kernel.scalars}
    kernel.function(**variant)[grid, block, 0, kernel.dynamic(variant)](
        *kernel.arguments({**on_device, **numbers})
    )
    return {n: on_device[n].copy_to_host().view(arrays[n].dtype) for n in arrays}
