"""What a forward reads besides its module and arguments is followed: no trace outlives it."""

import argparse
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.dropin_models import agree, by_bslite, nn, torch, wrapped
from support.torch_modules import Made

import bslite
from bslite.dropin import kinds
from bslite.dropin.runner import runner_of
from bslite.dropin.training import trainer

SCALE: Any = 2.0
DOUBLES = True
MODE = "add"
AXES = (1,)
TABLE: dict[str, Any] = {"at": {"x": 2.0}}
LIST = [2.0, 3.0]
NAMES = argparse.Namespace(scale=2.0)
OTHER = types.ModuleType("other_settings")
OTHER.scale = 2.0  # type: ignore[attr-defined]


class Settings:
    """Numbers on a class; ``deep`` is asked of an attribute."""

    scale = 2.0

    def __init__(self) -> None:
        self.inner = types.SimpleNamespace(scale=2.0)

    @property
    def deep(self) -> float:
        return self.inner.scale

    def twice(self) -> float:
        return 2 * self.inner.scale


class Slots:
    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 2.0


SETTINGS, SLOTS = Settings(), Slots()


def factor() -> float:
    return SCALE


def own() -> Any:
    return factor


CALLED: Callable[[], float] = factor


class Net(nn.Module):
    """A method of its own, a number on its class, objects among its attributes."""

    gain = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.a, self.settings = nn.Linear(6, 5), Settings()

    def scaled(self, x: Any) -> Any:
        held = self.settings.inner
        return x * SCALE * held.scale

    def forward(self, x: Any) -> Any:
        return self.scaled(self.a(x)) * self.gain


def around(scale: float) -> tuple[Callable[..., Any], Callable[[float], None]]:
    """A forward that reads a variable of this call, and a function that changes it."""

    def forward(m: Any, x: Any) -> Any:
        return m.a(x) * scale

    def change(value: float) -> None:
        nonlocal scale
        scale = value

    return forward, change


CLOSED, close = around(2.0)


def linear(forward: Callable[..., Any]) -> Callable[[], Any]:
    return lambda: Made(forward, a=nn.Linear(6, 5))


def here(**names: Any) -> Callable[[Any], None]:
    return lambda patch: [patch.setitem(globals(), k, v) for k, v in names.items()]  # type: ignore[return-value]


def held(owner: Any, value: Any = 3.0, name: str = "scale") -> Callable[[Any], None]:
    return lambda patch: patch.setattr(owner, name, value)


def called(m: Any, x: Any) -> Any:
    return m.a(x) * own()()


def imported(m: Any, x: Any) -> Any:
    from other_settings import scale

    return m.a(x) * scale


#: name -> the module, and what changes
READ: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "number": (linear(lambda m, x: m.a(x) * SCALE), here(SCALE=3.0)),
    "number of another type": (linear(lambda m, x: (m.a(x) * 7).long() // SCALE), here(SCALE=2)),
    "switch": (linear(lambda m, x: m.a(x) * 2 if DOUBLES else m.a(x)), here(DOUBLES=False)),
    "text": (linear(lambda m, x: getattr(m.a(x), MODE)(2)), here(MODE="mul")),
    "tuple": (linear(lambda m, x: m.a(x).sum(AXES)), here(AXES=(0, 1))),
    "none": (linear(lambda m, x: m.a(x) if SCALE is None else m.a(x) * 2), here(SCALE=None)),
    "dict": (linear(lambda m, x: m.a(x) * TABLE["at"]["x"]), lambda p: p.setitem(TABLE["at"], "x", 3.0)),
    "list": (linear(lambda m, x: m.a(x) * LIST[-1]), lambda p: LIST.append(4.0)),
    "object": (linear(lambda m, x: m.a(x) * NAMES.scale), held(NAMES)),
    "another object": (linear(lambda m, x: m.a(x) * NAMES.scale), here(NAMES=argparse.Namespace(scale=3.0))),
    "slots": (linear(lambda m, x: m.a(x) * SLOTS.scale), held(SLOTS)),
    "module": (linear(lambda m, x: m.a(x) * OTHER.scale), held(OTHER)),
    "imported when called": (linear(imported), held(OTHER)),
    "class": (linear(lambda m, x: m.a(x) * Settings.scale), held(Settings)),
    "class, of an object": (linear(lambda m, x: m.a(x) * SETTINGS.scale), held(Settings)),
    "over the class": (linear(lambda m, x: m.a(x) * SETTINGS.scale), held(SETTINGS)),
    "property": (linear(lambda m, x: m.a(x) * SETTINGS.deep), held(SETTINGS.inner)),
    "method": (linear(lambda m, x: m.a(x) * SETTINGS.twice()), held(SETTINGS.inner)),
    "closure": (linear(CLOSED), lambda p: close(3.0)),
    "function's": (linear(called), here(SCALE=3.0)),
    "function": (linear(lambda m, x: m.a(x) * CALLED()), here(CALLED=lambda: 3.0)),
    "partial": (lambda: Made(functools.partial(called), a=nn.Linear(6, 5)), here(SCALE=3.0)),
    "inner function's": (linear(lambda m, x: (lambda y: y * SCALE)(m.a(x))), here(SCALE=3.0)),
    "own method's": (Net, here(SCALE=3.0)),
    "own class": (Net, held(Net, name="gain")),
    "layer's": (lambda: nn.Sequential(Net(), nn.Tanh()), here(SCALE=3.0)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    sys.modules["other_settings"] = OTHER
    close(2.0)
    LIST[:] = [2.0, 3.0]
    yield
    del sys.modules["other_settings"]


@pytest.mark.parametrize("name", READ)
def test_inference_follows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, change = READ[name]
    net, x = make().eval(), torch.randn(3, 6)
    fast = wrapped(net)
    before = agree(fast, net, x)
    change(monkeypatch)
    after = agree(fast, net, x)
    assert before.dtype != after.dtype or before.shape != after.shape or not torch.equal(before, after)
    by_bslite(fast)


@pytest.mark.parametrize(
    "name", sorted(READ.keys() - {"number of another type"})
)  # integers have no gradients
def test_training_follows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, change = READ[name]
    net, x = make().train(), torch.randn(3, 6)
    fast = bslite.optimize(net, tune=False, fallback="error")
    made = []
    for _ in range(2):
        for run in (fast, net):
            net.zero_grad()
            y = run(x)
            y.square().sum().backward()
            made.append((y.detach(), *(p.grad.clone() for p in net.parameters())))
        ours, theirs = made[-2:]
        for a, b in zip(ours, theirs, strict=True):
            assert float((a - b).norm()) <= 1e-5 * float(b.norm())  # what changes changes far more
        change(monkeypatch)
    assert made[0][0].shape != made[2][0].shape or not torch.allclose(made[0][0], made[2][0])
    assert runner_of(fast).in_torch == {}


def test_an_object_among_the_modules_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = Net().eval(), torch.randn(3, 6)
    fast = wrapped(net)
    before = agree(fast, net, x)
    net.settings.inner.scale = 3.0
    assert not torch.equal(before, agree(fast, net, x))
    by_bslite(fast)


def test_an_equal_value_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it changes: a list in the place of an equal one is followed from then on."""
    exports: list[int] = []
    capture = kinds.capture
    monkeypatch.setattr(kinds, "capture", lambda *a, **k: exports.append(1) or capture(*a, **k))
    monkeypatch.setitem(globals(), "LIST", [2.0, 3.0])
    net, x = linear(lambda m, x: m.a(x) * LIST[0] * SCALE)().eval(), torch.randn(3, 6)
    fast = wrapped(net)
    agree(fast, net, x)
    monkeypatch.setitem(globals(), "SCALE", float("2.0"))
    monkeypatch.setitem(globals(), "LIST", [2.0, 3.0])
    agree(fast, net, x)
    assert len(exports) == 1
    LIST[0] = 4.0
    agree(fast, net, x)
    assert len(exports) == 2
    by_bslite(fast)


class Maker(dict):  # type: ignore[type-arg]
    """Makes something new of each entry that is asked for, as transformers' ACT2FN does."""

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key)()


MAKER: Any = Maker(gelu=nn.GELU)


def test_a_dict_that_makes_what_it_is_asked_for_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = linear(lambda m, x: MAKER["gelu"](m.a(x)))().eval(), torch.randn(3, 6)
    fast = wrapped(net)
    for _ in range(8):
        agree(fast, net, x)
    by_bslite(fast)
    assert runner_of(fast).rebuilt == 0
    dict.__setitem__(MAKER, "gelu", nn.ReLU)
    agree(fast, net, x)
    assert runner_of(fast).rebuilt == 1
    dict.__setitem__(MAKER, "gelu", nn.GELU)


def test_what_changes_at_every_call_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = linear(lambda m, x: m.a(x) * SCALE)(), torch.randn(3, 6)
    for mode in (False, True):
        net.train(mode)
        fast = bslite.optimize(net, tune=False, fallback="silent")
        with torch.set_grad_enabled(mode):
            for i in range(8):
                monkeypatch.setitem(globals(), "SCALE", float(i))
                torch.testing.assert_close(fast(x), net(x))
        assert "change from call to call" in "; ".join(runner_of(fast).in_torch), mode


def test_a_number_of_no_forward_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[int] = []
    capture = trainer.capture
    monkeypatch.setattr(trainer, "capture", lambda *a: traces.append(1) or capture(*a))
    net, x = linear(lambda m, x: m.a(x) * SETTINGS.scale)(), torch.randn(3, 6)
    fast = bslite.optimize(net.train(), tune=False, fallback="error")
    fast(x)
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    monkeypatch.setattr(SETTINGS, "other", 1.0, raising=False)
    fast(x)
    assert len(traces) == 1


def test_caches_of_libraries_are_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """einops keeps what it found out about each kind of tensor, at every trace as well."""
    library = types.ModuleType("einops")
    exec(
        "kept = {}\ndef turned(x):\n    kept[id(x)] = x.shape\n    return x.transpose(-1, -2)", vars(library)
    )
    monkeypatch.setitem(sys.modules, "einops", library)

    class Net(nn.Module):
        def forward(self, x: Any) -> Any:
            return library.turned(x) + 1  # type: ignore[attr-defined]

    fast = bslite.optimize(Net().eval(), tune=False)
    with torch.no_grad():
        for _ in range(4):
            fast(torch.randn(2, 3, 4))
    by_bslite(fast)
    assert bslite.report(fast).weights_followed == 0
