"""The device that is measured: how to put things on it, and how long calls take by its own clock."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.origin import versions_of

if TYPE_CHECKING:
    from benchmarks.gpu.ahead import Compilers
    from bslite.spec import Array, ModelSpec

PACKAGES = ("numba-cuda", "cuda-bindings", "nvidia-nvvm", "nvidia-nvjitlink", "triton")


class NoGpu(Exception):
    """There is no GPU to measure; the message says why."""


class DeviceLost(Exception):
    """The device answers no call of this process any more: a kernel did what it must not."""


class Host:
    """The CPU in a GPU's place, to rehearse: shows that all runs, measures nothing of interest."""

    kind = "cpu"

    def __init__(self) -> None:
        import torch

        self.torch = torch

    def put(self, thing: Any) -> Any:
        """A tensor or module on the device."""
        return thing.to(self.kind)

    def random(self, *shape: int) -> Any:
        """Random numbers, made on the device."""
        return self.torch.randn(*shape, device=self.kind)

    def unsearched(self) -> contextlib.AbstractContextManager[None]:
        """What runs once need not look for the fastest algorithm."""
        return contextlib.nullcontext()

    def prepare(self, spec: "ModelSpec", x: "Array") -> int:
        """Have bslite's kernels for a model compiled; how many were missing."""
        return 0

    def check(self) -> None:
        """DeviceLost if it is."""

    def close(self) -> None:
        """End what is under way beside the measurement."""

    def wait(self) -> None:
        """Return when all that was asked for is done."""

    def seconds(self, call: Callable[[], object], count: int) -> float:
        """Of one of ``count`` calls in a row, by the device's own clock."""
        start = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - start) / count

    def clear(self) -> None:
        """Give unused memory back."""

    def describe(self) -> dict[str, Any]:
        """Name, memory, processors, and the versions below Python."""
        return {"name": "the CPU, rehearsing"}


class Gpu(Host):
    """The current CUDA device, everything on torch's current stream."""

    kind = "cuda"

    def __init__(self) -> None:
        super().__init__()
        torch = self.torch
        if not torch.cuda.is_available():
            build = f"torch {torch.__version__} has no CUDA" if torch.version.cuda is None else "no device"
            raise NoGpu(f"no GPU to measure: {build}; --rehearse runs everything on the CPU, tiny")
        # Strict float32 for everybody; and cuDNN may look for its fastest algorithm.
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.benchmark = True
        self._compilers: Compilers | None = None

    @contextlib.contextmanager
    def unsearched(self) -> Iterator[None]:
        self.torch.backends.cudnn.benchmark = False
        try:
            yield
        finally:
            self.torch.backends.cudnn.benchmark = True

    def prepare(self, spec: "ModelSpec", x: "Array") -> int:
        from benchmarks.gpu.ahead import Compilers, wanted_by
        from bslite.engines.cuda.devices import driver_for

        driver: Any = driver_for()
        if self._compilers is None:
            capability = self.torch.cuda.get_device_capability(0)
            self._compilers = Compilers(capability)
        return self._compilers.compile(wanted_by(spec, [x.shape], driver.machine))

    def check(self) -> None:
        try:
            self.wait()
        except Exception as e:
            raise DeviceLost(" ".join(str(e).split())[:200]) from e

    def close(self) -> None:
        if self._compilers is not None:
            self._compilers.close()

    def wait(self) -> None:
        self.torch.cuda.synchronize()

    def seconds(self, call: Callable[[], object], count: int) -> float:
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        for _ in range(count):
            call()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e-3 / count

    def clear(self) -> None:
        self.torch.cuda.empty_cache()

    def describe(self) -> dict[str, Any]:
        found = self.torch.cuda.get_device_properties(0)
        return {
            "name": found.name,
            "memory": found.total_memory,
            "sms": found.multi_processor_count,
            "capability": f"{found.major}.{found.minor}",
            "cuda": self.torch.version.cuda,
            "driver": _driver_version(),
            "packages": versions_of(PACKAGES),
            "cudnn": self.torch.backends.cudnn.version(),
        }


def _driver_version() -> str | None:
    """The NVIDIA driver's, of the file in which Linux shows it."""
    try:
        with open("/proc/driver/nvidia/version") as file:
            return file.readline().strip()
    except OSError:
        return None
