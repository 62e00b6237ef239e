"""The device that is measured: how to put things on it, and how long calls take by its own clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class NoGpu(Exception):
    """There is no GPU to measure; the message says why."""


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
        """Give memory back that nobody uses."""
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
            "cudnn": self.torch.backends.cudnn.version(),
        }


class Host:
    """The CPU in a GPU's place, to rehearse: shows that all runs, measures nothing of interest."""

    kind = "cpu"

    def __init__(self) -> None:
        import torch

        self.torch = torch

    def put(self, thing: Any) -> Any:
        """It is there."""
        return thing

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
