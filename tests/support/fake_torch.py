"""What the engine uses of torch on a GPU, made of torch on the CPU: no torch here has CUDA."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bslite.engines.cuda.simulated import memory_at

torch = pytest.importorskip("torch")

DEFAULT = "the default stream"


class FakeTorch:
    """Both torch and torch.cuda. ``diary``: captures and empty caches; ``asked``: of the allocator."""

    class OutOfMemoryError(RuntimeError):
        """Raised by as many allocations as ``fails`` says."""

    def __init__(self) -> None:
        self.cuda, self.current, self.fails = self, [DEFAULT], 0
        self.diary: list[Any] = []
        self.asked: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        self.asked.append(("stream", stream))
        self.current.append(stream)
        try:
            yield
        finally:
            self.current.pop()

    def default_stream(self, device: int) -> Any:
        return DEFAULT

    def ExternalStream(self, stream: int, device: int) -> Any:
        """0 is the same as nothing, and one of the pool comes."""
        return stream or "one of the pool"

    def current_stream(self, device: int) -> Any:
        return SimpleNamespace(cuda_stream=71)

    def current_blas_handle(self) -> int:
        return 1

    def CUDAGraph(self) -> "Captured":
        return Captured(self)

    def empty_cache(self) -> None:
        self.diary.append("emptied")

    def empty(self, size: int, dtype: Any, device: str) -> "Owned":
        self.asked.append(("empty", size, device))
        if self.fails:
            self.fails -= 1
            raise self.OutOfMemoryError("CUDA out of memory")
        return Owned(size, self.asked)

    def as_tensor(self, described: Any, device: str) -> Any:
        given = described.__cuda_array_interface__
        assert (given["typestr"], device) == ("<f4", "cuda:0")
        reach = 1 + sum((n - 1) * s // 4 for n, s in zip(given["shape"], given["strides"], strict=True))
        memory = torch.from_numpy(memory_at(given["data"][0], np.float32, reach))
        return memory.as_strided(given["shape"], [s // 4 for s in given["strides"]])


class Owned:
    """Memory of torch's, filled with NaN."""

    def __init__(self, size: int, asked: list[Any]) -> None:
        self._cells, self._asked = torch.full((size // 4 + 128,), float("nan")), asked

    def data_ptr(self) -> int:
        address = int(self._cells.data_ptr())
        return address + -address % 256

    def record_stream(self, stream: Any) -> None:
        self._asked.append(("record_stream", stream))


class Captured:
    """Stands for torch.cuda.CUDAGraph: replays what was done while it captured, on the stream that is
    current then. As torch does, it is not captured on the default stream, and notes when it ends.
    """

    def __init__(self, torch: FakeTorch) -> None:
        self._torch = torch
        self.work: Any = None

    def capture_begin(self, capture_error_mode: str) -> None:
        assert self._torch.current[-1] not in (DEFAULT, 0)
        self._torch.diary.append("captured by torch")

    def capture_end(self) -> None:
        self._torch.diary.append(self._torch.current[-1])

    def replay(self) -> None:
        self.work()
