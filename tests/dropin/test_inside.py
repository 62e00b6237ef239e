"""Modules that no trace can follow: their own forward runs, with bslite inside its large layers."""

import copy
import pickle
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.dropin_models import Detector, Net, agree, images, near, nn, said, torch, wrapped

import bslite
from bslite.dropin import inside, kinds
from bslite.dropin.runner import CALLS
from bslite.dropin.wrapper import refresh
from bslite.errors import UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore:.*runs in torch")


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def net() -> Any:
    torch.manual_seed(0)
    return Detector().eval()


def paths(fast: Any) -> list[str]:
    """The layers inside that bslite ran."""
    return [path for path, own in bslite.report(fast).inside if own.kinds and not own.calls_in_torch]


def test_layers_run_in_bslite_and_the_forward_in_torch(net: Any) -> None:
    fast, held = wrapped(net, quiet=False), dict(net._modules)
    (text,) = said(fast, images())
    assert "but for its large layers" in text
    for batch in (2, 3, 1):
        agree(fast, net, images(batch))
    assert paths(fast) == ["backbone", "heads.0", "heads.1"]
    assert dict(net._modules) == held  # which are the user's own
    assert type(net.heads[0]) is nn.Linear
    assert "inside, backbone:" in str(bslite.report(fast))


def test_what_the_forward_notes_is_the_modules(net: Any) -> None:
    fast = wrapped(net, quiet=False)
    said(fast, images(3))
    assert (net.calls, net.last) == (1, 3)  # traced on copies
    said(fast, images(2))
    assert (fast.calls, fast.last) == (2, 2)


def test_changed_weights_and_layers_are_followed(net: Any) -> None:
    fast = wrapped(net, quiet=False)
    agree(fast, net, images())
    net.backbone[0].weight.mul_(2)
    agree(fast, net, images())
    net.backbone = nn.Sequential(nn.Conv2d(3, 8, 5), nn.Tanh()).eval()
    agree(fast, net, images())
    assert "backbone" in paths(fast)


def test_what_a_forward_does_to_its_layers_stays() -> None:
    class Grows(Detector):
        def forward(self, x: Any) -> Any:
            made = super().forward(x)
            if "more" not in self._modules:
                self.more = nn.Linear(8, 8).eval()
                del self.calls
                self.calls = 7
            return self.more(made)

    grows = Grows().eval()
    fast = wrapped(grows, quiet=False)
    said(fast, images())
    assert type(grows.more) is nn.Linear
    assert grows.calls == 7
    agree(fast, grows, images())


def test_a_layer_that_cannot_be_traced_is_entered_too() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.inner = Net(), Detector()

        def forward(self, x: Any) -> Any:
            return self.inner(x) + self.first(x).sum().item()

    outer = Outer().eval()
    fast = wrapped(outer, quiet=False)
    for batch in (2, 4):
        agree(fast, outer, images(batch))
    ((_, first), (path, own)) = bslite.report(fast).inside
    assert path == "inner"
    assert first.kinds[0].torch_share == 0
    assert [name for name, _ in own.inside] == ["backbone", "heads.0"]


class Keeps(nn.Module):
    """A stack whose layers the forward goes through, keeping what each makes, and counting its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(3)))
        self.kept: list[Any] = []
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.kept, self.calls = [], self.calls + 1
        for layer in self.layers:
            x = layer.forward(x) if layer is self.layers[2] else layer(x)
            self.kept.append(x)
        return x


def test_layers_that_are_never_called_are_opened() -> None:
    """A stack of which the forward calls the layers, a layer whose forward it calls."""
    net = Keeps().eval()
    fast = wrapped(net, quiet=False)
    for batch in (2, 3, 4, 2, 2, 2):
        x = torch.randn(batch, 16)
        near(fast(x), net(x))
    assert paths(fast) == ["layers.0", "layers.1", "layers.2.0"]
    assert len(fast.kept) == 3


def test_a_module_that_has_stopped_changing_is_bslites_again() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls = nn.Linear(16, 16), 0

        def forward(self, x: Any) -> Any:
            self.calls = min(self.calls + 1, 9)
            return self.layer(x)

    net, x = Counts().eval(), torch.randn(2, 16)
    fast = wrapped(net, quiet=False)
    for _ in range(40):
        near(fast(x), net.layer(x))
    report = bslite.report(fast)
    assert fast.calls == 9
    assert sum(report.calls_in_torch.values()) < 30
    assert report.kinds[-1].torch_share == 0


def test_hooks_inside_leave_the_other_layers(net: Any) -> None:
    plain, seen = Net().eval(), []
    plain.conv1.register_forward_hook(lambda layer, *_: seen.append(layer))
    fast = wrapped(plain, quiet=False)
    said(fast, images())
    agree(fast, plain, images())
    assert [layer is plain.conv1 for layer in seen] == [True] * 3
    assert "conv1" not in paths(fast)
    assert "conv2" in paths(fast)


def test_arguments_that_are_no_tensors_are_the_forwards_own() -> None:
    class Named:
        __slots__ = ("scale",)

        def __init__(self, scale: float) -> None:
            self.scale = scale

    class Scales(Net):
        def forward(self, x: Any, how: Any) -> Any:
            return super().forward(x) * how.scale

    net = Scales().eval()
    fast = wrapped(net, quiet=False)
    agree(fast, net, images(), Named(3.0))
    assert {"conv1", "conv2"} <= set(paths(fast))


KNOWN: Any = weakref.WeakKeyDictionary()


def test_the_forward_is_the_modules_own() -> None:
    class Registered(Detector):
        def forward(self, x: Any) -> Any:
            return super().forward(x) + KNOWN[self]

    net = Registered().eval()
    KNOWN[net] = 2
    fast = wrapped(net, quiet=False)
    for _ in range(2):
        agree(fast, net, images())
    assert "backbone" in paths(fast)


class Memory(nn.Module):
    """Has no forward, and notes what its methods make."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.held = nn.Linear(8, 8), None

    def step(self, x: Any) -> Any:
        self.held = self.fc(x) if self.held is None else self.held * 0.5 + self.fc(x)
        return self.held


class Looks(nn.Module):
    """Reads what the module that holds it notes."""

    def __init__(self, outer: Any) -> None:
        super().__init__()
        self.fc, self.outer = nn.Linear(8, 8), [outer]

    def forward(self, x: Any) -> Any:
        return self.fc(x) * self.outer[0].scale


class Tangled(nn.Module):
    """Whatever Python allows between a module and its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.memory, self.looks = nn.Linear(8, 8), nn.Linear(8, 8), Memory(), Looks(self)
        self.more, self.scale, self.scaled = nn.ModuleDict(), 1.0, self._scaled
        self.order, self.gains = [self.a, self.b], {self.b: 3.0}

    def _scaled(self, x: Any) -> Any:
        self.scale = float(x.abs().max())
        return x / self.scale

    def forward(self, x: Any) -> Any:
        x = self.scaled(self.a(x)) * self.scale
        x = self.looks(self.memory.step(x))
        for layer in self.order:
            x = layer(x) if layer is self.a and type(layer) is nn.Linear else x
            x = x * self.gains.get(self.b, 1.0)
        if "new" not in self.more:
            self.more["new"] = type(self.a)(8, 8).eval()
        self.a, self.b, self.kept = self.b, self.a, self.a
        return self.more["new"](x)


def test_layers_are_the_objects_that_they_are() -> None:
    torch.manual_seed(0)
    net = Tangled().eval()
    other = copy.deepcopy(net)
    fast = wrapped(net, quiet=False)
    for seed in range(4):
        x = torch.randn(3, 8)
        torch.manual_seed(seed)  # the layer that the first call makes is drawn
        want = other(x)
        torch.manual_seed(seed)
        near(fast(x), want)
    assert {type(m) for m in net.modules()} == {type(m) for m in other.modules()}
    assert net.kept is net.b
    assert not any("_compiled_call_impl" in vars(m) for m in net.modules())
    assert "looks" not in dict(bslite.report(fast).inside)


class Chooses(Net):
    """By a value; it notes nothing."""

    def forward(self, x: Any) -> Any:
        return super().forward(x) if float(x.sum()) > 1e9 else self.conv1(x).relu()


def test_other_threads_call_the_layers_themselves() -> None:
    net, x = Chooses().eval(), images()
    fast, want = wrapped(net, quiet=False), net(x)
    said(fast, x)

    def run(m: Any) -> Any:
        with torch.no_grad():
            return m(x)

    with ThreadPoolExecutor(4) as pool:
        for made in pool.map(run, [fast, net] * 20):
            near(made, want)
    assert paths(fast) == ["conv1"]
    assert bslite.report(fast).weights_followed == 0


def test_a_users_mistake_is_torchs_error(net: Any) -> None:
    fast = wrapped(net, quiet=False)
    with pytest.raises(RuntimeError, match="channels"), pytest.warns(UserWarning, match="trace"):
        fast(torch.randn(2, 4, 9, 9))
    agree(fast, net, images())
    assert {"heads.0", "heads.1"} <= set(paths(fast))


def test_no_fallback_is_no_fallback(net: Any) -> None:
    with pytest.raises(UnsupportedError):
        wrapped(net)(images())


def test_copies_and_pickles(net: Any) -> None:
    fast = wrapped(net, quiet=False)
    said(fast, images())
    for other in (copy.deepcopy(fast), copy.copy(fast), pickle.loads(pickle.dumps(fast))):
        agree(other, net, images())
        assert "backbone" in paths(other)


def test_many_layers_or_small_ones_are_left(monkeypatch: pytest.MonkeyPatch, net: Any) -> None:
    monkeypatch.setattr(inside, "MOST", 1)
    fast = wrapped(net, quiet=False)
    agree(fast, net, images())
    assert paths(fast) == ["backbone"]  # the rest have fewer parameters than a bound that two do not pass


def test_what_cannot_be_traced_is_tried_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Chooses().eval()
    tried: list[Any] = []
    take = kinds.capture
    monkeypatch.setattr(kinds, "capture", lambda m, *a, **k: (tried.append(m), take(m, *a, **k))[1])
    fast = wrapped(net, quiet=False)
    for side in range(8, 20):
        agree(fast, net, images(2, side))
    assert sum(m is net for m in tried) == 4  # at the first, second, fourth and eighth size


def test_layers_that_torch_runs_are_let_alone() -> None:
    class Asks(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x) * (1 if float(x.sum()) > 0 else 2)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Asks(6, 6), nn.Linear(6, 6)

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x)) + float(x[0, 0])

    net = Outer().eval()
    fast = wrapped(net, quiet=False)
    for _ in range(CALLS + 1):
        agree(fast, net, torch.randn(2, 6))
    assert [path for path, _ in bslite.report(fast).inside] == ["second"]


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.* is deprecated")
def test_layers_are_forgotten_and_scripted_or_shared_ones_left(net: Any) -> None:
    class Gives(nn.Linear):
        def forward(self, x: Any) -> Any:
            return (x[:, :4], super().forward(x))

    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Gives(8, 8), torch.jit.trace(nn.Linear(8, 8), torch.randn(2, 8))

        def forward(self, x: Any) -> Any:
            x = x + float(x[0, 0])
            part, made = self.first(x)
            part += 1
            return self.second(made + x)

    writes = Writes().eval()
    fast = wrapped(writes, quiet=False)
    for _ in range(2):
        agree(fast, writes, torch.randn(3, 8))
    assert paths(fast) == []
    fast = wrapped(net, quiet=False)
    said(fast, images())
    assert paths(fast)
    refresh(fast)
    assert not bslite.report(fast).inside


class Doubles(nn.Linear):
    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        return super()._call_impl(*args, **kwargs) * 2


def test_layers_with_a_call_of_their_own() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = Doubles(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: Any) -> Any:
            x = self.third(self.second(self.first(x)))
            return x * (2 if float(x[0, 0]) > 0 else 3)

    net = Outer().eval()
    fast = wrapped(net, quiet=False)
    agree(fast, net, torch.randn(2, 6))
    compiled = net.second._compiled_call_impl = lambda x: nn.Linear.forward(net.second, x) + 1
    net.third._call_impl = lambda x: nn.Linear.forward(net.third, x) - 1
    for _ in range(3):
        agree(fast, net, torch.randn(2, 6))
    assert net.second._compiled_call_impl is compiled
    assert "first" not in dict(bslite.report(fast).inside)
