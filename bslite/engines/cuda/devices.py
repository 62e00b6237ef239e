"""The devices there are: a driver for each."""

from __future__ import annotations

import functools

from bslite.engines.cuda.driver import Driver
from bslite.errors import EngineError


@functools.cache
def driver_for(device: int = 0) -> Driver:
    """The driver of a device. EngineError if it cannot be used, saying why."""
    try:
        from bslite.kernels.cuda.device import SIMULATED
    except ImportError as e:
        raise EngineError(
            f"backend 'cuda' needs the package numba-cuda ({e}); pip install 'bslite[cuda]'"
        ) from None
    if SIMULATED:
        from bslite.engines.cuda.simulated import SimulatedDriver

        return SimulatedDriver()
    raise EngineError("backend 'cuda': there is no CUDA device here")
