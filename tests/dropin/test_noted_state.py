"""Attributes that a forward notes and that later calls read, or that no trace makes, are torch's."""

import copy
import time
import types
from collections import OrderedDict, defaultdict, deque
from itertools import count
from typing import Any

import pytest
from support.dropin_models import nn, torch

import bslite
from bslite.dropin.runner import runner_of

Tensor = torch.Tensor
R = torch.randn
TICKS = count()


class Last(nn.Module):
    """``use``: adds what the call before has noted."""

    def __init__(self) -> None:
        super().__init__()
        self.line, self.last = nn.Linear(8, 8), torch.ones(4, 8)

    def forward(self, x: Tensor, use: bool = False) -> Tensor:
        y = self.line(x)
        if use:
            return y + self.last
        self.last = y
        return y * 2


@pytest.mark.parametrize("first", [False, True])
def test_another_kind_of_call_may_read_what_one_notes(first: bool) -> None:
    net = Last().eval()
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    with torch.no_grad():
        for i in range(12):
            x, use = R(4, 8), (i % 3 == 0) is first
            torch.testing.assert_close(fast(x, use=use), net(x, use=use))
            torch.testing.assert_close(fast.last, net.last)


class Stateful(nn.Module):
    """What ``step(module, y)`` makes of it."""

    calls = 0  # of all, traces among them

    def __init__(self, step: Any) -> None:
        super().__init__()
        self.line, self.step = nn.Linear(8, 8), step
        self.n, self.log, self.table, self.mean = 1, [], {}, None
        self.held = types.SimpleNamespace(n=0)
        self.ordered, self.several, self.recent = OrderedDict(), defaultdict(list), deque(maxlen=4)

    def forward(self, x: Tensor) -> Tensor:
        return self.step(self, self.line(x))


def counts(m: Any, y: Tensor) -> Tensor:
    m.n += 1
    return y * m.n


def appends(m: Any, y: Tensor) -> Tensor:
    m.log.append(y.mean())
    return y * len(m.log)


def fills(m: Any, y: Tensor) -> Tensor:
    m.table[len(m.table)] = y
    return y + len(m.table)


def fills_another(m: Any, y: Tensor) -> Tensor:
    m.ordered["y"] = y
    m.several["y"].append(1)
    m.recent.append(1)
    return y + len(m.several["y"]) + len(m.recent)


def averages(m: Any, y: Tensor) -> Tensor:
    m.mean = y.mean(0) if m.mean is None else 0.9 * m.mean + 0.1 * y.mean(0)
    return y - m.mean


def asks_whether(m: Any, y: Tensor) -> Tensor:
    if not hasattr(m, "first"):
        m.first = False
        return y * 2
    m.first = False
    return y


def asks_what_kind(m: Any, y: Tensor) -> Tensor:
    made = y * 2 if isinstance(m.mean, Tensor) else y
    m.mean = None if isinstance(m.mean, Tensor) else y
    return made


def deletes(m: Any, y: Tensor) -> Tensor:
    if "mark" in vars(m):
        del m.mark
        return y
    m.mark = 1
    return y * 2


def by_dict(m: Any, y: Tensor) -> Tensor:
    m.__dict__["n"] = m.__dict__["n"] + 1
    return y * m.n


def switches(m: Any, y: Tensor) -> Tensor:
    m.line.training = not m.line.training
    return y * (2 if m.line.training else 1)


def counts_in_its_dict(m: Any, y: Tensor) -> Tensor:
    m.n = m.__dict__.get("n", 1) + 1
    return y * m.n


def notes_in_an_object(m: Any, y: Tensor) -> Tensor:
    m.held.n += 1
    m.held.last = y
    return y * m.held.n


def counts_calls_of_all(m: Any, y: Tensor) -> Tensor:
    Stateful.calls += 1
    m.seen = y
    return y * 2


STATES = (
    counts_in_its_dict,
    notes_in_an_object,
    counts,
    appends,
    fills,
    fills_another,
    averages,
    asks_whether,
    asks_what_kind,
    deletes,
    by_dict,
    switches,
)


@pytest.mark.parametrize("step", STATES)
def test_what_a_later_call_reads_is_torchs(step: Any) -> None:
    net = Stateful(step).eval()
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    with torch.no_grad():
        for _ in range(7):
            x = R(4, 8)
            torch.testing.assert_close(fast(x), net(x))
            assert fast.n == net.n
            assert len(fast.log) == len(net.log)
            assert fast.table.keys() == net.table.keys()
            assert fast.held.n == net.held.n
            assert fast.ordered.keys() == net.ordered.keys()
            assert (fast.several, fast.recent) == (net.several, net.recent)


def test_a_number_of_the_class_is_state() -> None:
    fast = bslite.optimize(Stateful(counts_calls_of_all).eval(), fallback="silent", tune=False)
    with torch.no_grad():
        for _ in range(3):
            before = Stateful.calls
            fast(R(4, 8))
            assert Stateful.calls > before
    assert any("besides its arguments" in why for why in runner_of(fast).in_torch)


def says_when(m: Any, y: Tensor) -> Tensor:
    m.now = time.perf_counter()
    return y * 2


def counts_elsewhere(m: Any, y: Tensor) -> Tensor:
    m.tick = next(TICKS)
    return y * 2


def tells_sizes(m: Any, y: Tensor) -> Tensor:
    m.told = f"{y.shape}"
    return y * 2


def tells_its_kind(m: Any, y: Tensor) -> Tensor:
    m.kind = type(y).__name__
    return y * 2


def keeps_code(m: Any, y: Tensor) -> Tensor:
    m.again = lambda: y
    return y * 2


@pytest.mark.parametrize("step", [says_when, counts_elsewhere, keeps_code])
def test_a_note_that_no_trace_makes_is_torchs(step: Any) -> None:
    fast = bslite.optimize(Stateful(step).eval(), fallback="silent", tune=False)
    with torch.no_grad():
        x = R(4, 8)
        seen = []
        for _ in range(3):
            y = fast(x)
            seen.append(
                {"says_when": "now", "counts_elsewhere": "tick", "keeps_code": "again"}[step.__name__]
            )
            seen[-1] = getattr(fast, seen[-1])
    assert len(set(seen)) == 3
    assert not callable(seen[-1]) or torch.equal(seen[-1]() * 2, y)
    assert any("changes attributes" in why for why in runner_of(fast).in_torch)


@pytest.mark.parametrize("step", [tells_sizes, tells_its_kind])
def test_words_that_only_a_trace_has_are_torchs(step: Any) -> None:
    net = Stateful(step).eval()
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    with torch.no_grad():
        for batch in (4, 4, 5, 6):
            x = R(batch, 8)
            torch.testing.assert_close(fast(x), net(x))
            assert all(getattr(fast, k, None) == getattr(net, k, None) for k in ("told", "kind"))


@pytest.mark.filterwarnings("ignore:The tensor attribute")  # torch.export's, which is no error to most users
def test_a_cache_that_the_first_call_fills_leaves_the_model_whole() -> None:
    """The layers inside are not tried one by one for a call that is the only one of its kind."""

    class Fills(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(3))
            self.cache: dict[str, Tensor] = {}

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x).relu()
            if "scale" not in self.cache:
                self.cache["scale"] = self.layers[0].bias.exp()
            return x * self.cache["scale"]

    net = Fills().eval()
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    with torch.no_grad():
        for calls in range(3):
            x = R(64, 256)
            torch.testing.assert_close(fast(x), net(x))
            inside = runner_of(fast).inside.layers().values()
            assert not any(layer.specs() for layer in inside)
            assert bool(runner_of(fast).specs()) == (calls > 0)
    assert list(runner_of(fast).in_torch.values()) == [1]


def test_an_error_names_the_attribute() -> None:
    fast = bslite.optimize(Stateful(averages).eval(), fallback="error", tune=False)
    with torch.no_grad(), pytest.raises(bslite.UnsupportedError, match=r"changes attributes .*\(mean\)"):
        fast(R(4, 8)), fast(R(4, 8))


def test_what_training_notes_evaluation_may_read() -> None:
    class Net(Last):
        def forward(self, x: Tensor, use: bool = False) -> Tensor:
            return super().forward(x, not self.training)

    torch.manual_seed(0)
    net = Net()
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    for i in range(9):
        x = R(4, 8)
        for n in (net, fast):
            n.train(i % 3 == 0)
            if n.training:
                n.zero_grad()
                n(x).sum().backward()
        if i % 3:
            with torch.no_grad():
                torch.testing.assert_close(fast(x), net(x))
        torch.testing.assert_close(fast.last, net.last)
        for p, q in zip(fast.parameters(), net.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)
