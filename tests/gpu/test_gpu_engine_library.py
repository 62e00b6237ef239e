"""Convolutions and products by torch's libraries: the same results, and the choice by measurement. No torch
here has CUDA, so its CPU stands for a GPU (`fake_gpu`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fake_gpu import FakeApi, FakeGpu  # noqa: E402

import bslite  # noqa: E402
from bslite import GraphBuilder, ModelSpec  # noqa: E402
from bslite.engines.cpu import calibrate  # noqa: E402
from bslite.engines.cuda import engine  # noqa: E402
from bslite.engines.cuda.library import Library, TorchCall  # noqa: E402
from bslite.engines.cuda.simulated import memory_at  # noqa: E402
from bslite.plan.cuda import prologues  # noqa: E402

RNG = np.random.default_rng(0)


class Captured:
    """Stands for torch.cuda.CUDAGraph: replays what was done while it captured."""

    def __init__(self) -> None:
        self.work: Any = None

    def replay(self) -> None:
        self.work()


def cuda_torch(diary: list[Any]) -> Any:
    """What the engine uses of torch: its CPU's functions on "CUDA" memory."""

    class Owned:
        def __init__(self, size: int) -> None:
            self.cells = torch.full((size // 4 + 128,), float("nan"))

        def data_ptr(self) -> int:
            address = int(self.cells.data_ptr())
            return address + -address % 256

        def record_stream(self, given: Any) -> None:
            pass

    def as_tensor(described: Any, device: str) -> Any:
        given = described.__cuda_array_interface__
        assert (given["typestr"], device) == ("<f4", "cuda:0")
        reach = 1 + sum((n - 1) * s // 4 for n, s in zip(given["shape"], given["strides"], strict=True))
        memory = torch.from_numpy(memory_at(given["data"][0], np.float32, reach))
        return memory.as_strided(given["shape"], [s // 4 for s in given["strides"]])

    @contextmanager
    def graph(captured: Captured, stream: Any, capture_error_mode: str) -> Iterator[None]:
        diary.append("captured by torch")
        yield

    @contextmanager
    def flags(**given: Any) -> Iterator[None]:
        assert given == {
            "enabled": True, "benchmark": False, "deterministic": True, "allow_tf32": False
        }  # fmt: skip
        yield

    cuda = SimpleNamespace(
        stream=lambda s: nullcontext(), ExternalStream=lambda s, device: s, empty_cache=lambda: None,
        OutOfMemoryError=MemoryError, current_stream=lambda d: SimpleNamespace(cuda_stream=71),
        CUDAGraph=Captured, graph=graph,
    )  # fmt: skip
    cudnn = SimpleNamespace(flags=flags, version=lambda: 91000)
    names = ("nn", "clamp", "clamp_min", "no_grad", "uint8", "__version__")
    shared = {name: getattr(torch, name) for name in names}
    precision = ("get_float32_matmul_precision", "set_float32_matmul_precision")
    shared |= {name: getattr(torch, name) for name in precision}
    return SimpleNamespace(
        cuda=cuda, backends=SimpleNamespace(cudnn=cudnn), as_tensor=as_tensor,
        empty=lambda size, dtype, device: Owned(size), **shared,
    )  # fmt: skip


class TorchGpu(FakeGpu):
    """Captures torch's calls by keeping the work; times come from the test."""

    times: tuple[float, float] = (2.0, 1.0)

    def capture(self, work: Any, by_torch: bool = False) -> Any:
        if not by_torch:
            return super().capture(work)
        made = super()._captured_by_torch(work, self._side("capture"))
        made._graph.work = lambda: work(self._side("capture"))
        made.by_torch = True
        return made

    def seconds(self, work: Any, repeats: int) -> list[float]:
        for _ in range(repeats):
            work(self.private())
        ours, theirs = self.times
        return [theirs if getattr(work.__self__, "by_torch", False) else ours] * repeats


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TorchGpu:
    diary: list[Any] = []
    found = TorchGpu(FakeApi(), cuda_torch(diary))
    found.diary = diary  # type: ignore[attr-defined]
    monkeypatch.setattr(engine, "driver_for", lambda device=0: found)
    monkeypatch.setattr(calibrate, "folder", lambda: tmp_path)
    return found


def network(groups: int = 1) -> ModelSpec:
    """Convolutions of all that torch can take over, between layers that keep the caller's memory away."""
    graph = GraphBuilder("net")
    x = graph.input("x", (1, 4, 5, 3))
    y = graph.add("tanh", "start", x)
    graph.params |= {
        "w": RNG.standard_normal((4, 4 // groups, 3, 2), np.float32),
        "b": RNG.standard_normal(4, np.float32),
        "v": RNG.standard_normal((4, 4, 1, 1), np.float32),
        "l": RNG.standard_normal((6, 3), np.float32),
    }
    a = graph.add("conv2d", "a", y, params={"weight": "w", "bias": "b"}, padding=(1, 1, 1, 1),
                  stride=(2, 1), groups=groups)  # fmt: skip
    a = graph.add("relu", "ra", a)
    c = graph.add("conv2d", "c", a, params={"weight": "v"})
    d = graph.add("relu6", "d", graph.add("add", "sum", c, a))
    e = graph.add("linear", "e", graph.add("slice", "cut", d, axis=3, start=0, stop=3, step=1),
                  params={"weight": "l"})  # fmt: skip
    return graph.build(graph.add("sigmoid", "end", graph.add("permute", "p", e, order=(0, 1, 3, 2))))


def session_of(spec: ModelSpec) -> Any:
    (session,) = engine.engine_for(spec)._sessions.values()
    return session


def calls_of(spec: ModelSpec) -> list[str]:
    """Which layers torch computes."""
    workspace = session_of(spec)._free[0]
    return [launch._form["op"] for launch in workspace.launches if isinstance(launch, TorchCall)]


@pytest.mark.parametrize("groups", [1, 2])
def test_torch_computes_the_same(gpu: TorchGpu, groups: int) -> None:
    spec = network(groups)
    x = RNG.standard_normal((1, 4, 5, 3), np.float32)
    want = bslite.run(spec, x, backend="reference")
    for _ in range(3):
        np.testing.assert_allclose(bslite.run(spec, x, backend="cuda"), want, rtol=2e-6, atol=1e-6)
    assert calls_of(spec) == ["conv2d", "conv2d", "linear"]
    assert "captured by torch" in gpu.diary  # type: ignore[attr-defined]


def with_prologues() -> ModelSpec:
    """A batch norm before a convolution, a depthwise filter and a gate before pointwise ones."""
    graph = GraphBuilder("net")
    graph.params |= {name: RNG.standard_normal(8).astype(np.float32) for name in "bms"}
    graph.params |= {
        "v": RNG.uniform(0.5, 2, 8).astype(np.float32),
        "c": RNG.standard_normal(4, np.float32),
        "f": RNG.standard_normal((4, 4, 1, 1), np.float32),
        "w": RNG.standard_normal((4, 8, 3, 3), np.float32) / 8,
        "d": RNG.standard_normal((4, 1, 3, 3), np.float32) / 3,
        "p": RNG.standard_normal((6, 4, 1, 1), np.float32) / 2,
    }
    x = graph.add("conv2d", "first", graph.input("x", (2, 4, 5, 6)), params={"weight": "f"})
    x = graph.add("concat", "both", x, graph.add("tanh", "other", x), axis=1)
    norm = {"weight": "s", "bias": "b", "running_mean": "m", "running_var": "v"}
    y = graph.add("relu", "act", graph.add("batch_norm", "norm", x, params=norm, eps=1e-3))
    y = graph.add("conv2d", "wide", y, params={"weight": "w"}, padding=1)
    y = graph.add("conv2d", "deep", y, params={"weight": "d", "bias": "c"}, padding=1, stride=2, groups=4)
    y = graph.add("conv2d", "point", graph.add("silu", "then", y), params={"weight": "p"})
    y = graph.add("slice", "four", y, axis=1, start=0, stop=4, step=1)
    gate = graph.add("sigmoid", "gate", graph.add("adaptive_avg_pool2d", "mean", y, output_size=1))
    y = graph.add("conv2d", "last", graph.add("mul", "gated", y, gate), params={"weight": "p"})
    return graph.build(graph.add("tanh", "end", graph.add("relu", "positive", y)))


def test_torch_computes_prologues_too(gpu: TorchGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that does two layers is replaced by calls that do both."""
    monkeypatch.setattr(prologues, "seconds_together", lambda *_: 0.0)
    spec, x = with_prologues(), RNG.standard_normal((2, 4, 5, 6), np.float32)
    want = bslite.run(spec, x, backend="reference")
    for _ in range(3):
        np.testing.assert_allclose(bslite.run(spec, x, backend="cuda"), want, rtol=2e-6, atol=1e-6)
    launches = session_of(spec)._free[0].launches
    forms = [launch._form.get("before", {}) for launch in launches if isinstance(launch, TorchCall)]
    assert [form.get("kind") for form in forms] == [None, "affine", "depthwise", "gate"]


def test_ours_where_it_is_faster(gpu: TorchGpu) -> None:
    gpu.times = (1.0, 1.0)
    spec = network()
    x = RNG.standard_normal((1, 4, 5, 3), np.float32)
    np.testing.assert_allclose(
        bslite.run(spec, x, backend="cuda"), bslite.run(spec, x, backend="reference"), rtol=2e-6, atol=1e-6
    )
    assert calls_of(spec) == []


def test_what_was_measured_is_remembered(gpu: TorchGpu, tmp_path: Path, monkeypatch: Any) -> None:
    spec, x = network(), RNG.standard_normal((1, 4, 5, 3), np.float32)
    bslite.run(spec, x, backend="cuda")
    file = tmp_path / "gpu-fake.json"
    kept = json.loads(file.read_text())["seconds"]
    assert len(kept) == 3
    again = Library(gpu, file, gpu.library._version)  # type: ignore[attr-defined]

    def measured(*_: Any) -> Any:
        raise AssertionError("measured again")

    monkeypatch.setattr(again, "_measured", measured)
    gpu.library = again  # type: ignore[attr-defined]
    other = network()
    bslite.run(other, x, backend="cuda")
    assert calls_of(other) == ["conv2d", "conv2d", "linear"]
    file.write_text("{")
    with pytest.warns(RuntimeWarning, match="ignores its measurements"):
        assert Library(gpu, file, "")._known == {}


def test_torch_that_fails_is_not_chosen(gpu: TorchGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no algorithm")

    monkeypatch.setattr(torch.nn.functional, "conv2d", fails)
    spec, x = network(), RNG.standard_normal((1, 4, 5, 3), np.float32)
    with pytest.warns(UserWarning, match=r"torch's failed \(no algorithm\)"):
        got = bslite.run(spec, x, backend="cuda")
    np.testing.assert_allclose(got, bslite.run(spec, x, backend="reference"), rtol=2e-6, atol=1e-6)
    assert calls_of(spec) == ["linear"]
