"""The device that is measured: how to put things on it, and how long calls take by its own clock."""

from __future__ import annotations

import contextlib
import importlib.metadata
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.gpu.ahead import Compilers
    from bslite.spec import Array, ModelSpec

PACKAGES = ("numba-cuda", "cuda-bindings", "nvidia-nvvm", "nvidia-nvjitlink", "triton")


class NoGpu(Exception):
    """There is no GPU to measure; the message says why."""


class DeviceLost(Exception):
    """The device answers no call of this process any more: a kernel did what it must not."""


class Gpu:
    """The current CUDA device, everything on torch's current stream."""

    kind = "cuda"

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            build = f"torch {torch.__version__} has no CUDA" if torch.version.cuda is None else "no device"
            raise NoGpu(f"no GPU to measure: {build}; --rehearse runs everything on the CPU, tiny")
        # Strict float32 for everybody; and cuDNN may look for its fastest algorithm.
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.benchmark = True
        self.torch = torch
        self._compilers: Compilers | None = None

    def random(self, *shape: int) -> Any:
        """Random numbers, made on the device."""
        return self.torch.randn(*shape, device=self.kind)

    @contextlib.contextmanager
    def unsearched(self) -> Iterator[None]:
        """What runs once need not look for cuDNN's fastest algorithm."""
        self.torch.backends.cudnn.benchmark = False
        try:
            yield
        finally:
            self.torch.backends.cudnn.benchmark = True

    def prepare(self, spec: ModelSpec, x: Array) -> int:
        """Have bslite's kernels for a model compiled, by many processes; how many were missing."""
        from benchmarks.gpu.ahead import Compilers, wanted_by
        from bslite.engines.cuda.devices import driver_for

        driver: Any = driver_for()
        if self._compilers is None:
            capability = self.torch.cuda.get_device_capability(0)
            self._compilers = Compilers(capability)
        return self._compilers.compile(wanted_by(spec, [x.shape], driver.machine))

    def check(self) -> None:
        """DeviceLost if it is."""
        try:
            self.wait()
        except Exception as e:
            raise DeviceLost(" ".join(str(e).split())[:200]) from e

    def close(self) -> None:
        """End the processes that compile."""
        if self._compilers is not None:
            self._compilers.close()

    def put(self, thing: Any) -> Any:
        """A tensor or module on the device."""
        return thing.to(self.kind)

    def wait(self) -> None:
        """Return when all that was asked for is done."""
        self.torch.cuda.synchronize()

    def seconds(self, call: Callable[[], object], count: int) -> float:
        """Of one of ``count`` calls in a row, by events before the first and after the last."""
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(count):
            call()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e-3 / count

    def clear(self) -> None:
        """Give unused memory back."""
        self.torch.cuda.empty_cache()

    def describe(self) -> dict[str, Any]:
        """Name, memory, processors, and the versions below Python."""
        found = self.torch.cuda.get_device_properties(0)
        return {
            "name": found.name,
            "memory": found.total_memory,
            "sms": found.multi_processor_count,
            "capability": f"{found.major}.{found.minor}",
            "cuda": self.torch.version.cuda,
            "driver": _driver_version(),
            "packages": {name: v for name in PACKAGES if (v := _version(name))},
            "cudnn": self.torch.backends.cudnn.version(),
        }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _driver_version() -> str | None:
    """The NVIDIA driver's, of the file in which Linux shows it."""
    try:
        with open("/proc/driver/nvidia/version") as file:
            return file.readline().strip()
    except OSError:
        return None


class Host:
    """The CPU in a GPU's place, to rehearse: shows that all runs, measures nothing of interest."""

    kind = "cpu"

    def __init__(self) -> None:
        import torch

        self.torch = torch

    def put(self, thing: Any) -> Any:
        """It is there."""
        return thing

    def random(self, *shape: int) -> Any:
        """Random numbers."""
        return self.torch.randn(*shape)

    def unsearched(self) -> contextlib.AbstractContextManager[None]:
        """Nothing is searched for."""
        return contextlib.nullcontext()

    def prepare(self, spec: ModelSpec, x: Array) -> int:
        """The CPU's kernels are there."""
        return 0

    def check(self) -> None:
        """It is there."""

    def close(self) -> None:
        """Nothing is open."""

    def wait(self) -> None:
        """Nothing is under way."""

    def seconds(self, call: Callable[[], object], count: int) -> float:
        """Of one of ``count`` calls in a row."""
        start = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - start) / count

    def clear(self) -> None:
        """Nothing is kept."""

    def describe(self) -> dict[str, Any]:
        """That it is none."""
        return {"name": "the CPU, rehearsing"}


Device = Gpu | Host
