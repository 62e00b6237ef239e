"""What holds for every test: plans are made for the machine as described, not as once measured; where there
is no GPU, GPU kernels run in numba.cuda's simulator; processes that run tests side by side share the cores.
"""

import ctypes
import gc
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

MANY = 1000  # tests, for which it pays to have all kernels beforehand


def _gpu() -> bool:
    """Whether the CUDA driver is there and starts."""
    try:
        return bool(ctypes.CDLL("libcuda.so.1").cuInit(0) == 0)
    except OSError:
        return False


if not _gpu():
    os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1")  # read by Numba when it is first imported


if processes := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 0)):
    # Read by torch, whose setting bslite takes; tests that ask for more threads get them.
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // processes))
    os.environ["OMP_WAIT_POLICY"] = "passive"  # a thread that spins takes another process's core


gc.disable()  # what collecting the tests makes stays


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before many tests, the kernels of the CPU are compiled; few tests compile what they need."""
    gc.freeze()
    gc.enable()
    if processes and len(session.items) >= MANY:
        _warm()


def _warm() -> None:
    """All processes together: each kernel is compiled by one; the others load it when they need it."""
    from support.once import once

    import bslite.kernels.cpu  # noqa: F401  (registers them)
    from bslite.kernels.cpu.runtime.compile import STEP_KERNELS

    for name, kernel in STEP_KERNELS.items():
        with once(f"kernel {name}", wait=False) as mine:
            if mine:
                _ = kernel.address
    for name in STEP_KERNELS:
        with once(f"kernel {name}"):
            pass  # another process has been at it


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """``call(*arguments, code=0)``: what a command prints, its lines joined; it must exit with ``code``."""
    pytest.importorskip("typer")
    from bslite import cli

    def run(*arguments: Any, code: int = 0) -> str:
        with pytest.raises(SystemExit) as stop:
            cli.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert stop.value.code == code, err
        return " ".join(f"{out} {err}".replace("│", " ").split())

    return run


@pytest.fixture(scope="session", autouse=True)
def _no_stored_calibration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A user's ``bslite calibrate`` must not change which plans the tests see, nor a unit for tiles: tests of
    tiles ask for it.
    """
    from bslite.engines.cpu import calibration, unit

    empty = tmp_path_factory.mktemp("machines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(unit.OFF, "0")
        patch.setattr(calibration, "machines_dir", lambda: empty)
        calibration.kept.cache_clear()
        yield
    calibration.kept.cache_clear()


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions are of images, channels last, also where planes as they lie take less time."""
    from bslite.passes import plane_convs

    monkeypatch.setattr(plane_convs, "CLEARLY", math.inf)
