"""What holds for every test: plans are made for the machine as described, not as once measured; where there
is no GPU, GPU kernels run in numba.cuda's simulator.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import pytest


def _gpu() -> bool:
    """Whether the CUDA driver is there and starts."""
    try:
        return bool(ctypes.CDLL("libcuda.so.1").cuInit(0) == 0)
    except OSError:
        return False


if not _gpu():
    os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1")  # read by Numba when it is first imported


@pytest.fixture(scope="session", autouse=True)
def _no_stored_calibration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A user's ``bslite calibrate`` must not change which plans the tests see."""
    from bslite.engines.cpu import calibration

    empty = tmp_path_factory.mktemp("machines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "machines_dir", lambda: empty)
        calibration.kept.cache_clear()
        yield
    calibration.kept.cache_clear()
