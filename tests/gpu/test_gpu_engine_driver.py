"""The engine on a fake CUDA driver: tables of arguments, graphs, streams, copies, and what goes wrong."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support.fake_gpu import DriverError, FakeApi, FakeGpu, api  # noqa: F401  (api is a fixture)
from support.noise import noise

import bslite
from bslite import EngineError, GraphBuilder, InputError, ModelSpec
from bslite.engines.cuda.engine import engine_for
from bslite.engines.cuda.session import CudaSession

OUT_OF_MEMORY = DriverError(2, "CUDA_ERROR_OUT_OF_MEMORY")
SHAPE = (2, 8, 2, 2)
X = noise(*SHAPE)


def model(shape: tuple[int, ...] = SHAPE) -> ModelSpec:
    """A layer that reads what the caller gave, copies between, a layer that writes what he gets."""
    graph = GraphBuilder("net")
    x = graph.input("x", ("N", *shape[1:]), shape)
    y = graph.add("flatten", "f", graph.add("relu", "a", x), start_axis=1)
    return graph.build(graph.add("tanh", "t", graph.add("concat", "c", y, y, axis=1)))


def session_of(spec: ModelSpec) -> CudaSession:
    (session,) = engine_for(spec)._sessions.values()
    return session


def expected(spec: ModelSpec, x: np.ndarray = X) -> Any:
    return bslite.run(spec, x, backend="reference")


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=3e-7, atol=1e-37)


def ran() -> ModelSpec:
    """The model, run once."""
    spec = model()
    bslite.run(spec, X, backend="cuda")
    return spec


def right(spec: ModelSpec, x: np.ndarray = X) -> None:
    """The engine's answer is the reference's."""
    close(bslite.run(spec, x, backend="cuda"), expected(spec, x))


class Caller:
    """A caller's own memory, for work on stream 71: that of inputs, and of an answer of ``shape``."""

    def __init__(self, gpu: FakeGpu, shape: tuple[int, ...], *inputs: np.ndarray) -> None:
        self._gpu, self._answer, self._inputs = gpu, np.empty(shape, np.float32), inputs
        self._given = [gpu.allocate(x.nbytes, 71) for x in inputs]
        self._made = gpu.allocate(self._answer.nbytes, 71)

    def upload(self) -> None:
        for memory, x in zip(self._given, self._inputs, strict=True):
            self._gpu.upload(memory.address, x, 71)

    def run(self, session: CudaSession) -> None:
        session.run([memory.address for memory in self._given], [self._made.address], 71)

    def answer(self) -> np.ndarray:
        self._gpu.download(self._answer, self._made.address, 71)
        return self._answer


def test_runs_and_captures(api: FakeApi) -> None:  # noqa: F811
    """The first run starts kernels, the second captures them, from then on a graph is started."""
    spec = model()
    for run in range(4):
        right(spec, X + run)
        assert len(api.calls("cuStreamBeginCapture")) == (run > 0)
        assert len(api.calls("cuGraphLaunch")) == run
    assert len(api.graphs) == 1
    assert not api.capturing
    assert not api.contexts, "a context was left current"


def test_addresses_may_change(api: FakeApi) -> None:  # noqa: F811
    """What touches the caller's memory is not in the graph: its addresses are new in each call."""
    spec = ran()
    callers = [Caller(api.gpu, (2, 64), X + i) for i in range(3)]
    for i, caller in enumerate(callers):
        caller.upload()
        caller.run(session_of(spec))
        close(caller.answer(), expected(spec, X + i))


def test_a_failed_capture_is_ended(api: FakeApi) -> None:  # noqa: F811
    """One warning, then kernels one by one; nothing is left capturing."""
    spec = ran()
    started = len(api.calls("cuLaunchKernel"))
    api.fail["cuLaunchKernel"] = [None, DriverError(901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED")]
    with pytest.warns(RuntimeWarning, match="one by one: capturing them failed .*INVALIDATED"):
        right(spec)
    assert not api.capturing
    assert not api.graphs
    first = len(api.calls("cuLaunchKernel")) - started
    right(spec)
    assert len(api.calls("cuLaunchKernel")) > started + first
    assert not api.calls("cuGraphLaunch")
    other = model()
    for _ in range(2):
        bslite.run(other, X, backend="cuda")
    assert len(api.calls("cuGraphLaunch")) == 1, "another model's are captured"


@pytest.mark.parametrize("function", ["cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate"])
def test_capture_fails_at_either_end(api: FakeApi, function: str) -> None:  # noqa: F811
    spec = ran()
    api.fail[function] = [OUT_OF_MEMORY]
    with pytest.warns(RuntimeWarning, match="one by one"):
        right(spec)
    right(spec)


def test_a_kernel_that_fails(api: FakeApi) -> None:  # noqa: F811
    """An EngineError that says where, and the next run is right."""
    spec = model()
    api.fail["cuLaunchKernel"] = [None, DriverError(701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")]
    with pytest.raises(EngineError, match=r"cuda:0 \(fake\): CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"):
        bslite.run(spec, X, backend="cuda")
    assert not api.contexts
    right(spec)


def test_a_device_that_is_lost(api: FakeApi) -> None:  # noqa: F811
    """After a wrong address every call fails; the error says so, and the CPU goes on."""
    spec = ran()
    api.fail["cuEventSynchronize"] = [DriverError(700, "CUDA_ERROR_ILLEGAL_ADDRESS")]
    with pytest.raises(EngineError, match=r"ILLEGAL_ADDRESS, of this call or an earlier one; nothing works"):
        bslite.run(spec, X, backend="cuda")
    close(bslite.run(spec, X), expected(spec))


def test_out_of_memory(api: FakeApi) -> None:  # noqa: F811
    """What idles is let go of first; then the error says what was wanted and what there is."""
    small, large = model(), model()
    right(small)
    assert session_of(small)._free
    api.memory = api.used + 4096
    big = np.tile(X, (40, 1, 1, 1))
    with pytest.raises(EngineError, match=r"fake\): 0\.\d MB wanted for .*'net', 0\.\d MB of 0 MB free"):
        bslite.run(large, big, backend="cuda")
    assert not session_of(small)._free, "its workspace was let go of"
    api.memory = 1 << 30
    right(large, big)
    right(small)


def test_room_is_made(api: FakeApi) -> None:  # noqa: F811
    """With what idles gone, it fits: no error."""
    one = ran()
    api.memory = api.used + 1024
    right(model())
    assert not session_of(one)._free


def test_a_batch_of_none(api: FakeApi) -> None:  # noqa: F811
    spec = model()
    with pytest.raises(InputError, match=r"size 0 at axis 0 .*none of them empty"):
        bslite.run(spec, X[:0], backend="cuda")
    assert not api.calls("cuLaunchKernel")
    right(spec)


def test_a_stream_that_is_gone(api: FakeApi) -> None:  # noqa: F811
    spec, caller = ran(), Caller(api.gpu, (2, 64), X)
    api.streams.discard(71)
    with pytest.raises(EngineError, match="CUDA_ERROR_INVALID_HANDLE"):
        caller.run(session_of(spec))
    right(spec)


def test_streams_have_workspaces_of_their_own(api: FakeApi) -> None:  # noqa: F811
    """A stream takes what it used last; another's only when that is done, or when there are enough."""
    spec = ran()
    session = session_of(spec)
    first = session.acquire(71)
    session.release(first, 71)
    api.pending.add(first.event)
    assert session.acquire(72) is not first
    assert session.acquire(71) is first
    session.release(first, 71)
    api.pending.discard(first.event)
    assert session.acquire(72) is first
    assert (72, first.event, 0) in api.calls("cuStreamWaitEvent")
    session.release(first, 72)
    several = [session.acquire(71) for _ in range(4)]
    for workspace in several:
        session.release(workspace, 71)
        api.pending.add(workspace.event)
    found = session.acquire(72)
    assert found in [first, *several], "beyond so many, one waits"


def test_threads(api: FakeApi) -> None:  # noqa: F811
    """Several at once, each with its own stream: every answer is its own."""
    spec, all_there = model(), threading.Barrier(3)

    def work(seed: int) -> None:
        all_there.wait()
        for _ in range(3):
            right(spec, noise(*SHAPE, seed=seed))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))  # raises what a thread did
    assert len({stream for *_, stream, _, _ in api.calls("cuLaunchKernel")}) >= 3


def test_a_caller_who_captures(api: FakeApi) -> None:  # noqa: F811
    """Our kernels go into the caller's graph, in a workspace nobody else gets."""
    spec, caller = ran(), Caller(api.gpu, (2, 64), X)
    bslite.run(spec, X, backend="cuda")
    with api.gpu.here():
        api.cuStreamBeginCapture(71, 0)
        caller.run(session_of(spec))
        graph = api.cuStreamEndCapture(71)
        bslite.run(spec, -X, backend="cuda")
        caller.upload()
        api.cuGraphLaunch(graph, 71)
    close(caller.answer(), expected(spec))


def test_a_caller_who_captures_at_once(api: FakeApi) -> None:  # noqa: F811
    """In CUDA's strictest mode, with nothing ready: constants and kernels are loaded, and nothing of the
    host's is in the graph: whatever it holds later would be read at each start.
    """
    graph = GraphBuilder("index")  # with a check of values: an index out of range
    given = graph.input("x", (4, 3)), graph.input("i", (2,), dtype="int32")
    spec = graph.build(graph.add("gather", "g", graph.add("relu", "r", given[0]), given[1], axis=0))
    x, i = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([3, 1], np.int32)
    caller = Caller(api.gpu, (2, 3), x, i)
    caller.upload()
    with api.gpu.here():
        api.cuStreamBeginCapture(71, 0)
        caller.run(engine_for(spec).session([(4, 3), (2,)], [(3, 1), (1,)]))
        captured = api.cuStreamEndCapture(71)
        assert api.cuThreadExchangeStreamCaptureMode(0) == 0, "the thread is as restricted as before"
        api.cuGraphLaunch(captured, 71)
    close(caller.answer(), x[[3, 1]])
    close(bslite.run(spec, [x, i], backend="cuda"), x[[3, 1]])


def test_a_captured_session_is_never_dropped(api: FakeApi) -> None:  # noqa: F811
    """The caller's graph has the addresses of its memory, however many other shapes come after."""
    from bslite.engines.cuda.engine import MAX_PLANS

    spec, caller = ran(), Caller(api.gpu, (2, 64), X)
    with api.gpu.here():
        api.cuStreamBeginCapture(71, 0)
        caller.run(session_of(spec))
        graph = api.cuStreamEndCapture(71)
    for batch in range(3, 4 + MAX_PLANS):
        engine_for(spec).session([(batch, *SHAPE[1:])], [(32, 4, 2, 1)])
    caller.upload()
    with api.gpu.here():
        api.cuGraphLaunch(graph, 71)
    close(caller.answer(), expected(spec))
    (kept,) = (s.captured[0].arena.address for s in engine_for(spec)._in_graphs)
    assert kept in api.allocated


def test_a_session_that_is_captured_late_is_kept(api: FakeApi) -> None:  # noqa: F811
    """Someone still has it when the engine has dropped it; its memory stays with the caller's graph."""
    from bslite.engines.cuda.engine import MAX_PLANS

    spec, caller = ran(), Caller(api.gpu, (2, 64), X)
    session = session_of(spec)
    for batch in range(3, 4 + MAX_PLANS):
        engine_for(spec).session([(batch, *SHAPE[1:])], [(32, 4, 2, 1)])
    with api.gpu.here():
        api.cuStreamBeginCapture(71, 0)
        caller.run(session)
        api.cuStreamEndCapture(71)
    assert list(engine_for(spec)._in_graphs) == [session]


def test_threads_that_come_and_go(api: FakeApi) -> None:  # noqa: F811
    """The next one takes the streams and pinned memory of one that ended; none is made or destroyed."""
    spec = ran()
    made = len(api.calls("cuStreamCreate")), len(api.calls("cuMemHostAlloc"))
    for _ in range(3):
        thread = threading.Thread(target=lambda: [bslite.run(spec, X, backend="cuda") for _ in range(2)])
        thread.start()
        thread.join()
    more = len(api.calls("cuStreamCreate")) - made[0], len(api.calls("cuMemHostAlloc")) - made[1]
    assert more == (2, 2), "a stream to run on, one to capture on, two buffers"


def test_a_compiler_that_fails(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    def fails(*_: Any) -> Any:
        raise RuntimeError("libnvvm.so cannot be found")

    monkeypatch.setattr(api.gpu, "code", fails)
    with pytest.raises(EngineError, match=r"kernel '\w+' cannot be compiled \(RuntimeError: libnvvm"):
        bslite.run(model(), X, backend="cuda")


def test_large_copies_go_in_chunks(api: FakeApi) -> None:  # noqa: F811
    from bslite.engines.cuda.gpu.copies import CHUNK

    data = np.random.default_rng(1).integers(0, 255, 2 * CHUNK + 12, np.uint8).view(np.int32)
    gpu = api.gpu
    memory = gpu.allocate(data.nbytes, gpu.stream())
    gpu.upload(memory.address, data, gpu.stream())
    got = np.empty_like(data)
    gpu.download(got, memory.address, gpu.stream())
    np.testing.assert_array_equal(got, data)
    assert [size for _, _, size, _ in api.calls("cuMemcpyHtoDAsync")] == [CHUNK, CHUNK, 12]
    assert len(api.calls("cuMemHostAlloc")) == 2


def test_memory_is_given_back(api: FakeApi) -> None:  # noqa: F811
    import gc

    spec = model()
    for _ in range(3):
        bslite.run(spec, X, backend="cuda")
    del spec
    gc.collect()
    assert not api.allocated
    assert not api.graphs


def test_timing_of_launches(api: FakeApi) -> None:  # noqa: F811
    assert api.gpu.seconds(lambda stream: None, 3) == [1.5e-3] * 3


def test_warmup_compiles_and_captures(api: FakeApi) -> None:  # noqa: F811
    """After it, a run only starts a graph."""
    spec = model()
    assert "copy_pairs" in bslite.warmup(spec, backend="cuda")
    captured = len(api.calls("cuStreamBeginCapture"))
    right(spec)
    assert len(api.calls("cuStreamBeginCapture")) == captured == 1
    with pytest.raises(EngineError, match="give the model"):
        bslite.warmup(backend="cuda")
    with pytest.raises(EngineError, match="'reference' is not one of"):
        bslite.warmup(spec, backend="reference")
