"""Convolutions and products by torch's libraries: the same results, and the choice by measurement. No torch
here has CUDA, so its CPU stands for a GPU (`fake_gpu`).
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from support.check import Array  # noqa: E402
from support.fake_gpu import FakeApi, FakeGpu  # noqa: E402
from support.fake_torch import DEFAULT, Captured, FakeTorch  # noqa: E402
from support.layers import Model  # noqa: E402

import bslite  # noqa: E402
from bslite import GraphBuilder, ModelSpec  # noqa: E402
from bslite.engines.cuda import engine, library  # noqa: E402
from bslite.engines.cuda.gpu.graphs import TorchGraph  # noqa: E402
from bslite.engines.cuda.library import ROUNDS, Library, TorchCall  # noqa: E402
from bslite.plan.core.views import View  # noqa: E402
from bslite.plan.cuda.library import LibraryCall  # noqa: E402
from bslite.plan.cuda.tuning import Tuning  # noqa: E402

RNG = np.random.default_rng(0)


class TorchGpu(FakeGpu):
    """Captures torch's calls by keeping the work; times come from the test."""

    times: tuple[float, float] = (2.0, 1.0)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.timed: list[bool] = []  # whether torch's way

    def _captured_by_torch(self, work: Any) -> Any:
        made, current = super()._captured_by_torch(work), self.torch.current
        made._graph.work = lambda: work(current[-1] if current[-1] != DEFAULT else 0)
        made.by_torch = True
        return made

    def seconds(self, work: Any, repeats: int) -> list[float]:
        for _ in range(repeats):
            work(self.private())
        self.timed.append(getattr(work.__self__, "by_torch", False))
        ours, theirs = self.times
        return [theirs if getattr(work.__self__, "by_torch", False) else ours] * repeats


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TorchGpu:
    found = TorchGpu(FakeApi(), FakeTorch())
    monkeypatch.setattr(engine, "driver_for", lambda device=0: found)
    monkeypatch.setattr(library, "machines_dir", lambda: tmp_path)
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
    return graph.build(graph.add("softmax", "end", graph.add("permute", "p", e, order=(0, 1, 3, 2)), axis=3))


def image() -> Array:
    return RNG.standard_normal((1, 4, 5, 3), np.float32)


def expected(spec: ModelSpec, x: Array) -> Array:
    return bslite.run(spec, x, backend="reference")


def close(got: Any, want: Array) -> None:
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)


def right(spec: ModelSpec) -> None:
    """The engine's answer to an image is the reference's."""
    x = image()
    close(bslite.run(spec, x, backend="cuda"), expected(spec, x))


def session_of(spec: ModelSpec) -> Any:
    (session,) = engine.engine_for(spec)._sessions.values()
    return session


def calls_of(spec: ModelSpec) -> list[str]:
    """Which layers torch computes."""
    workspace = session_of(spec)._free[0]
    return [launch._form.op for launch in workspace.launches if isinstance(launch, TorchCall)]


@pytest.mark.parametrize("groups", [1, 2])
def test_torch_computes_the_same(gpu: TorchGpu, groups: int) -> None:
    spec = network(groups)
    for _ in range(3):
        right(spec)
    assert calls_of(spec) == ["conv2d", "conv2d", "linear"]
    assert gpu.torch.diary[-2] == "captured by torch"
    assert gpu.torch.diary.count("emptied") == 1, "once, when all was measured"


def with_prologues() -> ModelSpec:
    """A batch norm before a convolution, a depthwise filter and a gate before pointwise ones."""
    m = Model(2, 4, 5, 6)
    x = m.conv(m.x, 4, 4, bias=False)
    x = m.add("concat", x, m.add("tanh", x), axis=1)
    y = m.conv(m.add("relu", m.norm(x, 8)), 4, 8, 3, bias=False)
    y = m.conv(y, 4, 4, 3, stride=2, groups=4)
    y = m.conv(m.add("silu", y), 6, 4, bias=False)
    y = m.add("slice", y, axis=1, start=0, stop=4, step=1)
    gate = m.add("sigmoid", m.add("adaptive_avg_pool2d", y, output_size=1))
    y = m.conv(m.add("mul", y, gate), 6, 4, bias=False)
    return m.graph.build(m.add("tanh", m.add("relu", y)))


def test_launches_of_two_layers_stay_ours(gpu: TorchGpu) -> None:
    """No call of torch's for both was ever faster (482 measured on an H100)."""
    spec, x = with_prologues(), RNG.standard_normal((2, 4, 5, 6), np.float32)
    for _ in range(3):
        close(engine.run(spec, [x], tuning=Tuning(prologues=True))[0], expected(spec, x))
    assert calls_of(spec) == ["conv2d", "conv2d"]  # of four: a batch norm and a gate come before the others


def test_ours_where_it_is_faster(gpu: TorchGpu) -> None:
    gpu.times = (1.0, 1.0)
    spec = network()
    right(spec)
    assert calls_of(spec) == []


def test_what_was_measured_is_remembered(gpu: TorchGpu, tmp_path: Path, monkeypatch: Any) -> None:
    bslite.run(network(), image(), backend="cuda")
    file = tmp_path / "gpu-fake.json"
    kept = json.loads(file.read_text())["seconds"]
    assert len(kept) == 3
    again = Library(gpu, file, gpu.library._version)  # type: ignore[attr-defined]

    def measured(*_: Any) -> Any:
        raise AssertionError("measured again")

    monkeypatch.setattr(again, "_measured", measured)
    gpu.library = again  # type: ignore[attr-defined]
    other = network()
    bslite.run(other, image(), backend="cuda")
    assert calls_of(other) == ["conv2d", "conv2d", "linear"]
    file.write_text("{")
    with pytest.warns(RuntimeWarning, match="ignores its measurements"):
        assert Library(gpu, file, "")._known == {}


def test_torch_that_fails_is_not_chosen(gpu: TorchGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("no algorithm")

    monkeypatch.setattr(torch.nn.functional, "conv2d", fails)
    spec = network()
    with pytest.warns(UserWarning, match=r"torch's failed \(no algorithm\)"):
        right(spec)
    assert calls_of(spec) == ["linear"]
    assert gpu._api.calls("cuStreamSynchronize"), "what torch had started may still have been writing"


@pytest.mark.parametrize("stream", [0, 71])
def test_torch_computes_on_the_callers_stream(
    gpu: TorchGpu, monkeypatch: pytest.MonkeyPatch, stream: int
) -> None:
    """The default stream, too, which is number 0; captured or not."""
    spec, x, seen = network(), image(), []
    bslite.run(spec, x, backend="cuda")  # measures
    right = torch.nn.functional.conv2d

    def conv2d(*given: Any) -> Any:
        seen.append(gpu.torch.current[-1])
        return right(*given)

    monkeypatch.setattr(torch.nn.functional, "conv2d", conv2d)
    session = session_of(spec)
    given, made = gpu.allocate(x.nbytes, stream), gpu.allocate(4 * 120, stream)
    gpu.upload(given.address, x, stream)
    theirs = stream or DEFAULT
    for _ in range(3):
        session.run([given.address], [made.address], stream)
    assert theirs in seen
    assert set(seen) == {theirs, gpu.torch.diary[-1]}, "and the one that was captured"
    got = np.empty((1, 4, 3, 6), np.float32)
    gpu.download(got, made.address, stream)
    close(got.reshape(expected(spec, x).shape), expected(spec, x))


def test_graphs_that_live_have_streams_of_their_own(gpu: TorchGpu) -> None:
    """torch keeps cuBLAS's workspace for each stream: graphs captured on one would share it."""
    one, other = (gpu.capture(lambda s: None, by_torch=True) for _ in range(2))
    used = gpu.torch.diary[-3], gpu.torch.diary[-1]
    assert used[0] != used[1]
    del one
    gpu.capture(lambda s: None, by_torch=True)
    assert gpu.torch.diary[-1] == used[0]

    def fails(stream: int) -> None:
        raise RuntimeError("no algorithm")

    with pytest.raises(RuntimeError, match="no algorithm"):
        gpu.capture(fails, by_torch=True)
    broken = gpu.torch.diary[-1]
    gpu.capture(lambda s: None, by_torch=True)
    assert gpu.torch.diary[-1] not in (broken, used[1]), "a stream on which a capture failed is given up"
    del other


def test_a_capture_that_finds_no_memory_is_tried_again(gpu: TorchGpu) -> None:
    """torch does not let go of what dead graphs had while it captures."""
    tries: list[int] = []

    def work(stream: int) -> None:
        tries.append(stream)
        if len(tries) == 1:
            raise gpu.torch.OutOfMemoryError

    gpu.capture(work, by_torch=True)
    assert len(tries) == 2
    assert "emptied" in gpu.torch.diary


def test_inference_mode_may_come_and_go(gpu: TorchGpu) -> None:
    """What was made ready within it runs outside, and the other way round."""
    for first, then in ((torch.inference_mode, torch.no_grad), (torch.no_grad, torch.inference_mode)):
        spec = network()
        with first():
            bslite.run(spec, image(), backend="cuda")
        session_of(spec).no_graphs = "for the test"
        with then():
            right(spec)


def test_both_ways_are_timed_in_turns(gpu: TorchGpu) -> None:
    """The GPU's clock rises while it works: who comes second would be the faster."""
    bslite.run(network(), image(), backend="cuda")
    rounds = gpu.timed[2 : 2 + 2 * ROUNDS]
    assert rounds == [False, True] * ROUNDS


def test_a_graph_is_torchs_own_or_the_drivers(gpu: TorchGpu) -> None:
    """Newer versions of torch hand out the graph, which is then started like any other."""
    graph = Captured(gpu.torch)
    graph.raw_cuda_graph_exec = lambda: 4711  # type: ignore[attr-defined]
    gpu._api.graphs[4711] = [lambda: gpu.torch.diary.append("launched")]
    with gpu.here():
        TorchGraph(gpu, graph).start(71)
    assert gpu.torch.diary[-1] == "launched"
    assert gpu._api.calls("cuGraphLaunch") == [(4711, 71)]


def test_what_times_are_kept_under(gpu: TorchGpu) -> None:
    """Another torch, cuDNN or kernel measures anew, and so does another tile of ours."""

    def step(tile: int = 1) -> Any:
        variant = SimpleNamespace(constants=lambda: {"tile": tile})
        view = View("b0", 0, (2, 3), (3, 1))
        return SimpleNamespace(
            kernel="gemm", library=LibraryCall("linear", view, view), variant=variant, grid=(1,),
            operands={"w": ("w", 0), "biases": ("b", 0)},
        )  # fmt: skip

    keys = {Library(gpu, None, v).key(step(tile)) for v in "12" for tile in (1, 2)}
    assert len(keys) == 4
    assert Library(gpu, None, "1").key(step()) in keys


def test_two_processes_keep_what_both_measured(gpu: TorchGpu, tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    one, other = (Library(gpu, file, "1") for _ in range(2))
    one._known["a"], other._known["b"] = [1.0, 2.0], [3.0, 4.0]
    one._save()
    other._save()
    assert Library(gpu, file, "1")._known == {"a": [1.0, 2.0], "b": [3.0, 4.0]}
    assert list(tmp_path.iterdir()) == [file]
