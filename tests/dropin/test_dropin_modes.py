"""Where bslite does not compute, the original does, and one warning says why."""

import functools
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from support.dropin_models import Net, Stack, agree, by_bslite, images, near, nn, said, torch, wrapped
from support.kept import is_full, with_room
from support.torch_modules import Made

import bslite
from bslite.dropin.runner import runner_of


@pytest.fixture
def fast(net: Any) -> Any:
    """``net`` optimized, with warnings of what runs in torch."""
    return bslite.optimize(net, tune=False)


def test_training_mode_runs_the_original_with_one_warning() -> None:
    net = Net()
    fast = bslite.optimize(net, training=False, tune=False)
    first = said(fast, images(4))
    assert len(first) == 1
    assert "model 'Net' runs in torch: it is in training mode" in first[0]
    assert said(fast, images(4)) == []
    fast(images(4)).sum().backward()
    assert net.conv1.weight.grad is not None
    fast.eval()
    agree(fast, net, images())


def test_a_layer_in_training_mode(net: Any, fast: Any) -> None:
    agree(fast, net, images())
    net.bn1.train()
    with torch.no_grad():
        assert "training mode (bn1)" in said(fast, images())[0]


class Swapped(nn.Module):
    """A layer that has no mode."""

    def forward(self, x: Any) -> Any:
        return x.transpose(-1, -2)


class Asking(nn.Module):
    """A layer whose mode only a function elsewhere reads."""

    def forward(self, x: Any) -> Any:
        return scaled(self, x)


def scaled(layer: Any, x: Any) -> Any:
    return 2 * x if layer.training else 3 * x


def test_layers_that_never_ask_for_their_mode() -> None:
    """Copies of some libraries' layers come out in training mode: bslite runs the module nevertheless."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), Swapped(), Asking(), nn.Dropout()).eval()
    net[1].train()
    fast = bslite.optimize(net, tune=False)
    agree(fast, net, images())
    net[2].train()
    agree(fast, net, images())
    by_bslite(fast)
    net[3].train()
    with torch.no_grad():
        assert "training mode (3)" in said(fast, images())[0]


def test_a_method_that_wraps_one_of_torchs() -> None:
    class Wraps(nn.Module):
        @functools.wraps(torch.relu)
        def act(self, x: Any) -> Any:
            return torch.relu(x)

        def forward(self, x: Any) -> Any:
            return self.act(x)

    net = Wraps()
    fast = bslite.optimize(net, tune=False)
    with torch.no_grad():
        near(fast(x := images()), x.relu())
    by_bslite(fast)


def test_a_call_without_gradients_asks_no_parameter_for_them(net: Any, fast: Any) -> None:
    """Of which there may be hundreds."""
    agree(fast, net, images())

    def parameters(recurse: bool = True) -> Any:
        raise AssertionError("the call went through the parameters")

    object.__setattr__(net, "parameters", parameters)
    with torch.no_grad():
        assert not runner_of(fast)._trains((images(),), {})


def test_a_container_of_layers_in_eval_mode(net: Any) -> None:
    """A new Sequential is in training mode, which it never asks for."""
    front = nn.Sequential(*list(net.children())[:3])
    assert front.training
    fast = bslite.optimize(front, tune=False)
    agree(fast, front, images())
    by_bslite(fast)
    front[1].train()
    with torch.no_grad():
        assert "it is in training mode" in said(fast, images())[0]


@pytest.mark.parametrize("training", [False, True])
def test_a_generator_of_the_modules_own(training: bool) -> None:
    """Torch runs the call, and draws as often as without bslite."""

    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.drawn = nn.Linear(6, 6), torch.Generator()

        def forward(self, x: Any) -> Any:
            return self.layer(x) + torch.randn(x.shape, generator=self.drawn)

    net, x = Noisy().train(training), torch.randn(2, 6)
    fast = bslite.optimize(net, tune=False, fallback="silent")
    with torch.set_grad_enabled(training):
        net.drawn.manual_seed(1)
        made = [fast(x) for _ in range(3)]
        net.drawn.manual_seed(1)
        for m in made:
            near(m, Noisy.forward(net, x))
    assert any("a torch._C.Generator" in why for why in bslite.report(fast).calls_in_torch)


def test_gradients_that_are_needed(net: Any, fast: Any) -> None:
    assert "gradients are enabled" in said(fast, images())[0]
    y = fast(images())
    assert y.requires_grad
    net.requires_grad_(False)
    assert said(fast, images()) == []
    assert not fast(images()).requires_grad
    x = images().requires_grad_()
    fast(x).sum().backward()
    assert x.grad is not None
    calls = sum(bslite.report(fast).calls_in_torch.values())
    with torch.inference_mode():
        assert fast(images()).is_inference()
    agree(fast, net, x)
    by_bslite(fast, calls)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: images().double(), "float64"),
        (lambda: images().to("meta"), "an input is on meta"),
        (lambda: images(0), "an input is empty"),
        (lambda: images().to_sparse(), "sparse"),
    ],
)
def test_inputs_that_bslite_does_not_take(make: Any, text: str) -> None:
    """Torch's answer or torch's error; and what bslite takes is still its own."""
    fast = bslite.optimize(nn.ReLU().eval(), tune=False)
    x = make()
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = fast(x)
        assert y.dtype == x.dtype
        assert y.device == x.device
        fast(x)
    assert len(caught) == 1
    assert text in str(caught[0].message)


def test_the_warning_points_at_the_call() -> None:
    fast = bslite.optimize(Net(), training=False, tune=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fast(images(2))
    assert caught[0].filename == __file__


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_what_torch_refuses_is_torchs_error_alone(dtype: Any) -> None:
    fast = bslite.optimize(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(), tune=False)
    x = torch.randn(2, 5, 16).to(dtype)
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="same dtype"):
            fast(x)
    assert not caught


def test_silent_says_nothing() -> None:
    fast = bslite.optimize(Net(), training=False, tune=False, fallback="silent")
    assert said(fast, images(4)) == []
    assert list(bslite.report(fast).calls_in_torch) == [
        "it is in training mode; bslite runs inference: call .eval()"
    ]


def test_parameters_of_another_dtype() -> None:
    net = Net().eval().double()
    fast = bslite.optimize(net, tune=False)
    with torch.no_grad():
        assert "float64" in said(fast, images().double())[0]
    net.float()
    calls = sum(bslite.report(fast).calls_in_torch.values())
    agree(fast, net, images())
    by_bslite(fast, calls)


def test_under_other_tools() -> None:
    """Traces, transforms and dispatch modes see the original's operations."""
    from torch.utils.flop_counter import FlopCounterMode

    net = Stack().eval()
    fast = bslite.optimize(net, tune=False, fallback="silent")
    x = torch.randn(3, 12)
    agree(fast, net, x)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with FlopCounterMode(display=False) as counter:
            fast(x)
        assert counter.get_total_flops() == 2 * 3 * 12 * 16 + 2 * 3 * 16 * 7
        near(torch.func.vmap(fast)(x), net(x))
        near(torch.jit.trace(fast, x)(2 * x), net(2 * x))
        exported = torch.export.export(fast, (x,))
        near(exported.module()(x), net(x))
        assert "linear" in str(exported.graph)
        traced = torch.fx.experimental.proxy_tensor.make_fx(fast)(x)
        assert "mm" in str(traced.graph)
        near(torch.compile(fast, backend="eager", fullgraph=True)(x), net(x))


def test_within_a_bigger_module() -> None:
    net = nn.Sequential(nn.Linear(12, 12), Stack(), nn.Softmax(1)).eval()
    inner = nn.Sequential(net[0], wrapped(net[1]), net[2])
    outer = wrapped(inner)
    x = torch.randn(3, 12)
    agree(inner, net, x)
    agree(outer, net, x)
    by_bslite(outer)


def test_many_threads_at_once(net: Any, fast: Any) -> None:
    """First calls and later ones, of several sizes, from several threads."""
    inputs = [images(b) for b in (1, 2, 3, 2, 1, 4)]
    with torch.no_grad():
        want = [net(x) for x in inputs]

    def call(seed: int) -> None:
        for i in np.random.default_rng(seed).integers(len(inputs), size=30):
            with torch.no_grad():
                near(fast(inputs[i]), want[i])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(4)))  # raises what a call raised
    by_bslite(fast)


def test_specialisations_are_bounded(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with_room(monkeypatch, 800)
    fast = wrapped(net)
    for side in range(5, 20):
        agree(fast, net, images(2, side))
    kept = runner_of(fast).kinds.made.values()
    assert is_full(kind.operations() for kind in kept)
    assert 5 < len(kept) == len(bslite.report(fast).kinds) < 15
    agree(fast, net, images(2, 5))
    by_bslite(fast)


def test_threads_and_torchs_setting(net: Any) -> None:
    x = images(4)
    one, two = wrapped(net, threads=1), wrapped(net, threads=2)
    with torch.no_grad():
        assert torch.equal(one(x), two(x))
    default = wrapped(net)
    before = torch.get_num_threads()
    try:
        with torch.no_grad():
            first = default(x)
            torch.set_num_threads(1)
            assert torch.equal(default(x), first)
    finally:
        torch.set_num_threads(before)


def test_a_module_whose_attributes_change_at_every_call_is_left_to_torch() -> None:
    def counting(net: Any, x: Any) -> Any:
        net.calls += 1
        return net.fc(x)

    def keeping(net: Any, x: Any) -> Any:
        net.seen.append(x)
        return net.fc(x)

    x = torch.randn(2, 4)
    counts, keeps = (Made(f, fc=nn.Linear(4, 4), calls=0, seen=[]).eval() for f in (counting, keeping))
    for net in (counts, keeps):
        fast = wrapped(net, fallback="silent")
        with torch.no_grad():
            for _ in range(12):
                near(fast(x), net.fc(x))
    assert counts.calls == 12
    assert all(kept is x for kept in keeps.seen)
    assert len(keeps.seen) == 12


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_what_cannot_be_watched_runs_in_torch() -> None:
    class ByTable(Stack):
        def forward(self, x: Any) -> Any:
            return super().forward(torch.sparse.mm(self.table, x.T).T)

    sparse, unread = ByTable(), Stack()
    for net in (sparse, unread):
        net.register_buffer("table", torch.eye(12).to_sparse())
    agree(fast := wrapped(unread), unread, torch.randn(3, 12))
    by_bslite(fast)
    scripted = Stack()
    scripted.first = torch.jit.trace(scripted.first, torch.randn(3, 12))
    for net, reason in ((sparse, "sparse_coo"), (scripted, "has no Python to trace")):
        fast = wrapped(net, quiet=False, fallback="silent")
        agree(fast, net, torch.randn(3, 12))
        (why,) = bslite.report(fast).calls_in_torch
        assert reason in why
        with torch.no_grad(), pytest.raises(bslite.UnsupportedError, match=reason):
            wrapped(net)(torch.randn(3, 12))
    with pytest.raises(bslite.UnsupportedError, match="table is torch"):
        bslite.from_torch(sparse, torch.randn(3, 12))


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("kinds.capture", ZeroDivisionError),
        ("runner.Executable", ZeroDivisionError),
        ("blueprint.Blueprint.assemble", bslite.SpecError),
    ],
)
def test_a_fault_of_bslites_own_leaves_the_program_running(
    net: Any, where: str, error: type[Exception], monkeypatch: Any
) -> None:
    def broken(*given: Any, **named: Any) -> Any:
        raise error("planted\nin two lines")

    monkeypatch.setattr(f"bslite.dropin.{where}", broken)
    fast, x = bslite.optimize(net, tune=False), images()
    with torch.no_grad():
        (text,) = said(fast, x)
        assert f"which is a fault of its own: {error.__name__}: planted" in text
        assert "two lines" not in text
        assert said(fast, x) == []
        assert torch.equal(fast(x), net(x))
        with pytest.raises(error, match="planted"):
            wrapped(net)(x)
