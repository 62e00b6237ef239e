"""torch tensors and modules on the GPU engine. No torch here has CUDA, so its CPU tensors stand for a GPU's:
their addresses go to a fake driver, whose device memory is the host's.
"""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.fake_gpu import FakeApi, FakeGpu, api  # noqa: E402, F401  (api is a fixture)
from support.fake_torch import DEFAULT, FakeTorch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import bslite  # noqa: E402
from bslite import EngineError, GraphBuilder, InputError, ModelSpec  # noqa: E402
from bslite.dropin import place  # noqa: E402
from bslite.engines.cuda import border, devices  # noqa: E402
from bslite.engines.cuda.driver import OutOfMemory  # noqa: E402
from bslite.engines.cuda.engine import engine_for  # noqa: E402

SHAPE = (2, 6, 2, 2)


def model(dtype: str = "float32") -> ModelSpec:
    graph = GraphBuilder("net")
    x = graph.input("x", SHAPE, dtype=dtype)
    y = graph.add("relu", "a", x) if dtype == "float32" else graph.add("permute", "p", x, order=(0, 2, 3, 1))
    return graph.build(graph.add("concat", "c", y, y, axis=1))


def images(seed: int = 0) -> Any:
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))


def expected(x: Any) -> Any:
    y = x.relu()
    return torch.cat([y, y], 1)


# -- the border --------------------------------------------------------------------------------------


FORMS = {
    "row-major": lambda x: x,
    "channels_last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(2, 3),
    "gaps": lambda x: x.repeat(1, 1, 1, 3)[..., ::3],
    "expanded": lambda x: x[:1].expand(SHAPE),
    "misaligned": lambda x: torch.empty(97)[1:].set_(torch.empty(97).untyped_storage(), 1, SHAPE).copy_(x),
    "grad": lambda x: x.clone().requires_grad_(),
    "negative bit": lambda x: torch.complex(x, -x).conj().imag,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_forms_of_tensors(api: FakeApi, form: Any) -> None:  # noqa: F811
    """Whatever it is, it is taken where it lies, or copied where it cannot be."""
    x = form(images())
    spec = model()
    for _ in range(3):
        (y,) = border.run(spec, [x])
        torch.testing.assert_close(y, expected(x.detach()), rtol=0, atol=0)
        assert not y.requires_grad


def test_answers_lie_as_images_do(api: FakeApi) -> None:  # noqa: F811
    """As those of torch's layers; a call remembers what was made ready for the other layout."""
    graph = GraphBuilder("net")
    y = graph.add("relu", "a", graph.input("x", (2, 6, 3, 4)))
    spec = graph.build(graph.add("concat", "c", y, y, axis=1))
    for form in (torch.contiguous_format, torch.channels_last) * 2:
        x = torch.randn(2, 6, 3, 4).to(memory_format=form)
        (y,) = border.run(spec, [x])
        assert y.is_contiguous(memory_format=form)
        torch.testing.assert_close(y, expected(x), rtol=0, atol=0)
    assert len(engine_for(spec)._sessions) == 2


def test_what_is_permuted_is_no_image(api: FakeApi) -> None:  # noqa: F811
    """It comes back row-major, as its layer writes it."""
    graph = GraphBuilder("net")
    y = graph.add("relu", "a", graph.input("x", SHAPE))
    spec = graph.build(graph.add("permute", "p", y, order=(0, 2, 3, 1)))
    x = images().to(memory_format=torch.channels_last)
    (y,) = border.run(spec, [x])
    assert y.is_contiguous()
    torch.testing.assert_close(y, x.relu().permute(0, 2, 3, 1), rtol=0, atol=0)


def test_nothing_is_copied(api: FakeApi) -> None:  # noqa: F811
    border.run(model(), [images()])
    assert not api.calls("cuMemcpyHtoDAsync")
    assert not api.calls("cuMemcpyDtoHAsync")
    assert not api.calls("cuEventSynchronize"), "nobody waited"


@pytest.mark.parametrize("dtype", ["int64", "int32", "bool"])
def test_integers(api: FakeApi, dtype: str) -> None:  # noqa: F811
    kind = getattr(torch, dtype)
    x = torch.arange(48).reshape(SHAPE).to(kind)
    (y,) = border.run(model(dtype), [x])
    moved = x.permute(0, 2, 3, 1)
    assert y.dtype == kind
    assert torch.equal(y, torch.cat([moved, moved], 1))
    if dtype == "int64":
        with pytest.raises(InputError, match=r"input 'x' holds 2147483648; .*32 bits"):
            border.run(model(dtype), [x + 2**31 - 47])


def test_streams_are_asked_for_each_time(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Work goes to whichever stream is torch's current one at the call."""
    current = iter([71, 72, 71, 0])
    monkeypatch.setattr(api.gpu, "stream", lambda: next(current))
    spec = model()
    call = border.prepared(spec, [images()])
    used = []
    for seed in range(4):
        before = len(api.diary)
        (y,) = call([images(seed)])
        torch.testing.assert_close(y, expected(images(seed)), rtol=0, atol=0)
        started = [e for e in api.diary[before:] if e[0] in ("cuLaunchKernel", "cuGraphLaunch")]
        capture = {s for (s, _) in api.calls("cuStreamBeginCapture")}
        used.append({e[9] if e[0] == "cuLaunchKernel" else e[2] for e in started} - capture)
    assert used == [{71}, {72}, {71}, {0}]


def test_devices_of_inputs() -> None:
    """CUDA tensors take the GPU engine by themselves; inputs on two devices are an error."""
    from bslite import api as public

    graph = GraphBuilder("net")
    a, b = graph.input("a", (2, 3)), graph.input("b", (2, 3))
    spec = graph.build(graph.add("concat", "c", a, b, axis=0))
    with FakeTensorMode():
        on_gpu, on_host = torch.empty(2, 3, device="cuda"), torch.empty(2, 3)
        other = torch.empty(2, 3, device="cuda:1")
        assert public.cuda_tensors(spec, [on_gpu, on_gpu]) == [on_gpu, on_gpu]
        assert public.cuda_tensors(spec, [on_host, on_host]) == []
        with pytest.raises(InputError, match="inputs on cpu and cuda:0; all must be on one"):
            bslite.run(spec, [on_gpu, on_host])
        with pytest.raises(InputError, match="inputs on cuda:0 and cuda:1"):
            bslite.run(spec, [on_gpu, other], backend="cuda")
        with pytest.raises(InputError, match="takes 2 input"):
            bslite.run(spec, [on_gpu])
        with pytest.raises(InputError, match=r"is torch\.float64, expected torch\.float32"):
            bslite.run(spec, [on_gpu, on_gpu.double()])
        with pytest.raises(InputError, match=r"input 'a' is on cuda:0; .* \.cpu\(\)"):
            bslite.run(spec, [on_gpu, on_gpu], backend="cpu")


def test_cpu_tensors_come_back_as_such(api: FakeApi) -> None:  # noqa: F811
    y = bslite.run(model(), images(), backend="cuda")
    assert api.calls("cuMemcpyHtoDAsync")
    torch.testing.assert_close(y, expected(images()), rtol=0, atol=0)


# -- torch's allocator and streams --------------------------------------------------------------------


def test_torch_allocates() -> None:
    torch = FakeTorch()
    gpu = FakeGpu(FakeApi(), torch)
    assert gpu.stream() == 71
    memory = gpu.allocate(1000, 72)
    assert torch.asked == [("stream", 72), ("empty", 1000, "cuda:0")]
    gpu.used(memory, 72)
    assert torch.asked[-1] == ("record_stream", 72)
    gpu.used(memory, 0)
    assert torch.asked[-1] == ("record_stream", DEFAULT), "an external stream number 0 is any other"
    torch.fails = 1
    gpu.allocate(1000, 71)
    assert "emptied" in torch.diary
    torch.fails = 2
    with pytest.raises(OutOfMemory, match=r"0\.0 MB wanted for weights, 1,024\.0 MB of 1,024 MB free"):
        gpu.allocate(1000, 71, "weights")


# -- optimize(model.cuda()) --------------------------------------------------------------------------


@pytest.fixture
def on_gpu(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> FakeApi:  # noqa: F811
    """Every tensor is taken for one of cuda:0."""
    monkeypatch.setattr(place, "of", lambda tensor: torch.device("cuda", 0))
    monkeypatch.setattr(devices, "driver_for", lambda device=0: api.gpu)
    return api


class Net(torch.nn.Module):
    """An op with GPU kernels, one without for the test, others again."""

    def forward(self, x: Any) -> Any:
        y = torch.cat([x.relu(), x.sigmoid()], 1)
        y = y.cumsum(1)
        y = y.relu().transpose(1, 3).flatten(1)
        return torch.cat([y, y], 1).tanh()


def test_optimize_runs_on_the_gpu(on_gpu: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no GPU kernel stays in torch, with a warning that lists it; the rest is the GPU's."""
    from bslite.plan.core import lowering

    monkeypatch.delitem(lowering.CUDA, "cumsum", raising=False)
    net, x = Net().eval(), images()
    fast = bslite.optimize(net, tune=False)
    with torch.no_grad(), pytest.warns(UserWarning, match=r"cumsum.*: no GPU kernel for cum"):
        got = fast(x)
    torch.testing.assert_close(got, net(x), rtol=1e-6, atol=1e-7)
    assert on_gpu.calls("cuLaunchKernel")
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(fast(x), net(x), rtol=1e-6, atol=1e-7)
    assert on_gpu.calls("cuGraphLaunch")


def test_tuning_runs_both(on_gpu: FakeApi) -> None:
    net, x = Net().eval(), images()
    fast = bslite.optimize(net, fallback="silent")
    with torch.no_grad():
        torch.testing.assert_close(fast(x), net(x), rtol=1e-6, atol=1e-7)
    parts = bslite.report(fast).kinds[0].parts
    assert parts
    assert all(p.seconds for p in parts)


def test_a_capture_of_what_is_not_ready(on_gpu: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's kernels go into the graph then, and a warning says what to do; ours, once all is ready."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    now = [True]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: now[0])
    fast, x = bslite.optimize(torch.nn.ReLU().eval(), tune=False), images()
    with torch.no_grad():
        with pytest.warns(UserWarning, match="call the model with them before the capture"):
            assert torch.equal(fast(x), x.relu())
        assert not on_gpu.calls("cuLaunchKernel")
        now[0] = False
        fast(x)
        now[0] = True
        before = len(on_gpu.calls("cuLaunchKernel"))
        assert torch.equal(fast(x), x.relu())
    assert len(on_gpu.calls("cuLaunchKernel")) > before


def test_a_gpu_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch runs the call; one warning says why."""

    def none(device: int = 0) -> Any:
        raise EngineError("backend 'cuda' needs the package numba-cuda")

    monkeypatch.setattr(place, "of", lambda tensor: torch.device("cuda", 0))
    monkeypatch.setattr(devices, "driver_for", none)
    fast, x = bslite.optimize(torch.nn.ReLU().eval()), images()
    with torch.no_grad(), pytest.warns(UserWarning, match="runs in torch: .* needs the package numba-cuda"):
        assert torch.equal(fast(x), x.relu())
    with torch.no_grad():
        assert torch.equal(fast(x), x.relu()), "said once"


def test_several_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        place, "of", lambda t: torch.device("cuda", 0) if t.ndim == 4 else torch.device("cpu")
    )
    fast, x = bslite.optimize(torch.nn.PReLU().eval()), images()
    with torch.no_grad(), pytest.warns(UserWarning, match="several devices: cpu and cuda:0"):
        assert torch.equal(fast(x), fast(x))
