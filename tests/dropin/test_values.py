"""Modules whose sizes depend on what an input holds: a trace for these values, and torch for too many."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.dropin_models import agree, by_bslite, near, nn, said, torch, wrapped

import bslite
from bslite.dropin import capture, reasons
from bslite.dropin.kinds import MAX_TRACES
from bslite.dropin.runner import runner_of
from bslite.errors import UnsupportedError


class Windows(nn.Module):
    """Rows in windows as long as an input says, each a sum to itself; and an embedding of other numbers."""

    def __init__(self, lengths: Callable[[Any], Any] = lambda x: x.tolist()) -> None:
        super().__init__()
        self.fc, self.words, self.lengths = nn.Linear(6, 6), nn.Embedding(9, 6), lengths

    def forward(self, x: Any, lengths: Any, ids: Any) -> Any:
        parts = self.fc(x + self.words(ids)).split(self.lengths(lengths))
        return torch.cat([p - p.sum(0, keepdim=True) if len(p) > 2 else p for p in parts])


def call(*lengths: int) -> tuple[Any, ...]:
    rows = sum(lengths)
    return torch.randn(rows, 6), torch.tensor(lengths), torch.randint(0, 9, (rows,))


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of torch.export."""
    made: list[Any] = []
    export = torch.export.export
    monkeypatch.setattr(torch.export, "export", lambda *a, **k: (made.append(a), export(*a, **k))[1])
    return made


def test_the_same_sizes_with_other_values(exports: list[Any]) -> None:
    net = Windows().eval()
    fast = wrapped(net)
    for lengths in ((2, 3, 4), (4, 3, 2), (2, 3, 4), (3, 3, 3), (4, 3, 2)):
        agree(fast, net, *call(*lengths))
    by_bslite(fast)
    before = len(exports)
    agree(fast, net, *call(4, 3, 2))  # with other ids, which decide nothing
    assert len(exports) == before
    assert {k.blueprint.capture.decided for k in runner_of(fast).kinds.made.values()} == {(1,)}


def through_memory(lengths: Any) -> Any:
    held = torch.zeros(3, dtype=torch.long)
    held[:2] = lengths[:2]
    view = held.view(1, 3)[0, 2:]
    view += lengths[2]
    return held.tolist()


def one_by_one(lengths: Any) -> Any:
    return [int(n) for n in lengths]


def by_positions(lengths: Any) -> Any:
    rows = torch.repeat_interleave(torch.arange(3), lengths)
    return torch.bincount(rows).numpy().tolist()


def by_truth(lengths: Any) -> Any:
    return [torch.arange(20)[torch.arange(20) < n].numel() for n in lengths.unbind()]


@pytest.mark.parametrize("lengths", [through_memory, one_by_one, by_positions, by_truth])
def test_whatever_way_a_size_is_computed(lengths: Any) -> None:
    net = Windows(lengths).eval()
    fast = wrapped(net)
    for given in ((2, 3, 4), (4, 3, 2), (2, 4, 3), (2, 3, 4)):
        agree(fast, net, *call(*given))
    by_bslite(fast)


class Buffers(Windows):
    """Writes into what it makes, looks numbers up, and gives back what it was given."""

    def forward(self, x: Any, lengths: Any, ids: Any) -> Any:
        made = torch.zeros(x.shape)
        made[:] = super().forward(x, lengths, torch.arange(8, -1, -1)[ids])
        return made.relu(), lengths


def test_what_is_written_to_is_not_followed_and_what_is_looked_up_does_not_decide() -> None:
    net = Buffers().eval()
    fast = wrapped(net)
    given = call(2, 3, 4)
    agree(fast, net, *given)
    agree(fast, net, *call(2, 3, 4))
    assert fast(*given)[1] is given[1]
    assert {k.blueprint.capture.decided for k in runner_of(fast).kinds.made.values()} == {(1,)}
    by_bslite(fast)


def test_only_few_numbers_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "FEW", 2)
    net = Windows().eval()
    fast = wrapped(net, quiet=False)
    agree(fast, net, *call(2, 5))
    by_bslite(fast)
    assert "cannot trace" in said(fast, *call(2, 3, 4))[0]


@pytest.mark.filterwarnings("ignore:.*runs in torch")
def test_what_decides_may_come_in_another_form() -> None:
    net = Windows(lambda x: x.to_dense().tolist()).eval()
    fast = wrapped(net, quiet=False)
    x, lengths, ids = call(2, 3)
    for given in (lengths, lengths.to_sparse(), lengths):
        fast(x, given, ids)
    near(fast(x, lengths, ids), net(x, lengths, ids))


def test_a_run_between_values_is_no_fault() -> None:
    class Cuts(Windows):
        def forward(self, x: Any, lengths: Any, ids: Any) -> Any:
            return self.fc(x[lengths[0] : lengths[0] + lengths[1]])

    net = Cuts().eval()
    fast = wrapped(net)
    for given in ((2, 3), (1, 4), (2, 3)):
        near(fast(*(args := call(*given))), net(*args))
    by_bslite(fast)


def test_a_constant_is_what_it_was_when_it_was_read() -> None:
    class Counts(Windows):
        def forward(self, x: Any, lengths: Any, ids: Any) -> Any:
            count = lengths + 0
            made = []
            for _ in range(count.tolist()[0]):
                made.append(100 * self.fc(x) + count.sum())
                count[:1] += 1
            return torch.stack(made), 100 * self.fc(x)[:, count.tolist()[0] - 1]

    net = Counts().eval()
    fast = wrapped(net)
    for given in ((2, 3), (3, 2), (2, 3)):
        agree(fast, net, *call(*given))
    by_bslite(fast)


def test_later_values_are_traced_when_they_come_again() -> None:
    net = Windows().eval()
    fast = wrapped(net, quiet=False)
    agree(fast, net, *call(2, 7))
    for _ in range(2):
        agree(fast, net, *call(3, 6))
    agree(fast, net, *call(3, 6))
    assert runner_of(fast).in_torch == {reasons.VALUES: 1}


def test_too_many_values_are_left_to_torch() -> None:
    net = Windows().eval()
    fast = wrapped(net, quiet=False)
    for n in range(1, MAX_TRACES + 2):
        for _ in range(2):
            agree(fast, net, *call(n, 10 - n))
    assert said(fast, *call(8, 2)) == []
    assert any("traces for as many" in text for text in said(fast, *call(8, 2)))
    agree(fast, net, *call(1, 9))
    assert runner_of(fast).in_torch == {reasons.VALUES: MAX_TRACES + 1, reasons.DECIDED: 1}


def test_an_argument_that_is_written_to_is_torchs() -> None:
    class Writes(Windows):
        def forward(self, x: Any, lengths: Any, ids: Any) -> Any:
            lengths += 1
            return super().forward(x, lengths, ids)

    fast = wrapped(Writes().eval(), quiet=False)
    x, lengths, ids = call(3, 3)
    assert "cannot trace" in said(fast, x, lengths - 1, ids)[0]
    given = torch.tensor((2, 2))
    fast(x, given, ids)
    assert given.tolist() == [3, 3]


def test_numbers_that_are_drawn_stay_so() -> None:
    class Draws(Windows):
        def forward(self, x: Any, lengths: Any, ids: Any) -> Any:
            order = torch.multinomial(torch.ones(len(lengths)), len(lengths))
            return super().forward(x, lengths[order], ids)

    net = Draws().eval()
    fast = wrapped(net, quiet=False)
    assert "cannot trace" in said(fast, *call(3, 1, 4))[0]
    for seed in range(5):
        given = call(3, 1, 4)
        torch.manual_seed(seed)
        want = net(*given)
        torch.manual_seed(seed)
        torch.testing.assert_close(fast(*given), want)


def test_traced_values_are_not_written_into_what_is_followed() -> None:
    class Notes(Windows):
        def forward(self, x: Any, lengths: Any, ids: Any) -> Any:
            rows = torch.zeros(lengths.tolist()[0], dtype=torch.long)
            rows[:] = ids[: len(rows)]
            return super().forward(x, lengths, ids) + self.words(rows).sum(0)

    net = Notes().eval()
    fast = wrapped(net, quiet=False)
    assert "cannot trace" in said(fast, *call(3, 4))[0]
    agree(fast, net, *call(3, 4))


def test_results_that_are_followed_are_the_callers_own() -> None:
    class Says(Windows):
        def forward(self, x: Any, lengths: Any, ids: Any) -> Any:
            ends = lengths.cumsum(0)
            return super().forward(x, lengths, ids), ends, torch.arange(ends.tolist()[-1])

    net = Says().eval()
    fast = wrapped(net)
    given = call(2, 5)
    for made in (fast(*given), fast(*given)):
        for mine, own in zip(made, net(*given), strict=True):
            torch.testing.assert_close(mine, own)
        made[1].zero_()
        made[2].zero_()


class Every(nn.Module):
    """Every other column, chosen by a mask that the forward makes."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        places = torch.arange(x.shape[-1])
        return self.fc(x[..., places[places % 2 == 0]])


def test_what_a_forward_makes_of_sizes_alone_is_followed() -> None:
    net, x = Every().eval(), torch.randn(3, 8)
    spec = bslite.from_torch(net, x)
    assert len(spec.inputs) == 1
    for rows in (3, 5):
        given = torch.randn(rows, 8)
        torch.testing.assert_close(torch.from_numpy(bslite.run(spec, given.numpy())), net(given))
    fast = wrapped(net)
    agree(fast, net, x)
    by_bslite(fast)


class OfKinds(nn.Module):
    """Rows of each kind through a layer of their own; all are of one kind unless told otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])

    def forward(self, x: Any) -> Any:
        kinds = 1 * torch.ones(x.shape[0])
        made = torch.zeros_like(x)
        for kind, layer in enumerate(self.layers):
            mine = kinds == kind
            made[mine] = layer(x[mine])
        return made + 1


def test_conditions_that_a_forward_makes_are_followed() -> None:
    net = OfKinds().eval()
    fast = wrapped(net)
    for rows in (2, 5, 2, 1):
        agree(fast, net, torch.randn(rows, 6))
    by_bslite(fast)


def test_a_trace_leaves_the_class_as_it_was() -> None:
    net = Windows().eval()
    wrapped(net)(*call(2, 3))
    with pytest.raises(UnsupportedError, match="cannot trace"):
        bslite.from_torch(net, call(2, 3))
    assert type(net) is Windows
