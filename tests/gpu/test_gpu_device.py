"""A device is opened: what it must be able to do, and the errors where it or a package is missing."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.fake_gpu import DriverError, FakeApi, FakeGpu, api  # noqa: F401  (api is a fixture)
from support.graphs import one_op
from support.process import python

import bslite
from bslite import EngineError
from bslite.engines.cuda import devices


def device(**attributes: Any) -> SimpleNamespace:
    """An H200 by its attributes."""
    h200 = {
        "name": "NVIDIA H200", "compute_capability": (9, 0), "MULTIPROCESSOR_COUNT": 132,
        "CLOCK_RATE": 1980000, "MEMORY_CLOCK_RATE": 3201000, "GLOBAL_MEMORY_BUS_WIDTH": 6144,
        "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
        "L2_CACHE_SIZE": 62914560, "MAX_THREADS_PER_BLOCK": 1024,
    }  # fmt: skip
    return SimpleNamespace(**{**h200, **attributes})


def test_the_machine_of_a_device() -> None:
    fake = FakeApi()
    fake.get_device = lambda number: device()
    gpu = devices.open_gpu(0, fake, 13, torch=None)
    assert gpu.name == "cuda:0 (NVIDIA H200)"
    machine = gpu.machine
    assert (machine.sms, machine.lanes, machine.clock) == (132, 128, 1.98e9)
    assert machine.memory_bandwidth == pytest.approx(4.917e12, rel=1e-3)
    assert (machine.register_bytes, machine.shared_bytes) == (176 << 10, 227 << 10)
    assert devices.machine_of(device(compute_capability=(8, 0))).lanes == 64
    tensor = {
        c: devices.machine_of(device(compute_capability=c)).tensor_lanes for c in ((9, 0), (8, 0), (8, 9))
    }
    assert tensor == {
        (9, 0): 1024,
        (8, 0): 512,
        (8, 9): 0,
    }  # where three products are no faster than one: none


@pytest.mark.parametrize(
    ("change", "number", "toolkit", "said"),
    [
        ({"is_available": False, "initialization_error": "no CUDA-capable\ndevice (100)"}, 0, 13,
         r"there is no CUDA device here \(no CUDA-capable device \(100\)\)"),
        ({"version": (12, 4)}, 0, 13, r"supports CUDA 12\.4, .* of CUDA 13; update the driver, or pip"),
        ({}, 1, 13, "there is no device cuda:1; this machine has 1"),
        ({"get_device": lambda n: device(compute_capability=(7, 5))}, 0, 13, r"7\.5; bslite needs 8\.0"),
    ],
)  # fmt: skip
def test_a_device_that_will_not_do(change: dict[str, Any], number: int, toolkit: int, said: str) -> None:
    fake = FakeApi()
    for name, value in change.items():
        setattr(fake, name, value)
    with pytest.raises(EngineError, match=said):
        devices.open_gpu(number, fake, toolkit, torch=None)


def test_a_driver_that_does_not_start() -> None:
    """numba's raises when it is asked for the first time, and says it later."""

    class Broken(FakeApi):
        @property
        def is_available(self) -> bool:  # type: ignore[override]
            raise ImportError("Error at driver init: CUDA_ERROR_NO_DEVICE (100)")

    with pytest.raises(EngineError, match=r"no CUDA device here \(Error at driver init: .*NO_DEVICE"):
        devices.open_gpu(0, Broken(), 13, torch=None)


def test_contexts_are_put_back() -> None:
    fake = FakeApi()
    gpu = FakeGpu(fake)
    fake.contexts.append(7)
    with gpu.here(), gpu.here():
        assert fake.contexts == [7, 500]
    assert fake.contexts == [7]


def test_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without numba-cuda: one error that says what to install; `bslite info` says it too."""
    from bslite.cli import info

    monkeypatch.setitem(sys.modules, "bslite.kernels.cuda.runtime.device", None)
    monkeypatch.delattr("bslite.kernels.cuda.runtime.device")
    devices._driver.cache_clear()
    with pytest.raises(EngineError, match=r"needs the package numba-cuda .*: pip install 'bslite\[cuda\]'"):
        bslite.run(one_op("relu", (2,)), np.ones(2, np.float32), backend="cuda")
    assert info._gpu().startswith("none: needs the package numba-cuda")
    devices._driver.cache_clear()


def test_packages_that_do_not_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older numba-cuda beside a newer numba fails with whatever it misses first; its version is said."""
    import builtins

    real = builtins.__import__

    def fails(name: str, *given: Any) -> Any:
        if name == "bslite.kernels.cuda.runtime":
            raise AttributeError("module 'numba.cuda.types' has no attribute 'NPDatetime'")
        return real(name, *given)

    pytest.importorskip("numba_cuda")
    monkeypatch.setattr(builtins, "__import__", fails)
    devices._driver.cache_clear()
    with pytest.raises(
        EngineError, match=r"numba-cuda \(\d+\..* beside numba \d+\..*: AttributeError: module"
    ):
        bslite.run(one_op("relu", (2,)), np.ones(2, np.float32), backend="cuda")
    devices._driver.cache_clear()


def test_info_shows_the_device(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    from bslite.cli import info

    assert info._gpu().startswith("numba.cuda's simulator, 1 SMs at 1.83 GHz")
    monkeypatch.setattr(devices, "driver_for", lambda device=0: api.gpu)
    assert info._gpu() == "cuda:0 (fake), 1 SMs at 1.83 GHz, 1.0 of 1.0 GB free"


def test_no_device() -> None:
    """With the package and no GPU, in a process that has the real numba.cuda."""
    pytest.importorskip("numba_cuda")
    code = """
import numpy, bslite
graph = bslite.GraphBuilder("net")
spec = graph.build(graph.add("relu", "r", graph.input("x", (2,))))
x = numpy.ones(2, numpy.float32)
try:
    bslite.run(spec, x, backend="cuda")
except bslite.EngineError as e:
    print(e)
print(bslite.run(spec, x))
"""
    done = python(code, NUMBA_ENABLE_CUDASIM=None, CUDA_VISIBLE_DEVICES="-1")  # hidden, where there is one
    assert done.returncode == 0, done.stderr
    error, answer = done.stdout.splitlines()
    assert error.startswith("backend 'cuda': there is no CUDA device here (")
    assert answer == "[1. 1.]"
