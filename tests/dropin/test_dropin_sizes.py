"""Calls that differ in sizes alone: one more trace, with these sizes free, serves all of them."""

import gc
import random
from collections.abc import Iterator
from typing import Any

import pytest
from support.dropin_models import F, Net, agree, by_bslite, images, nn, said, torch, wrapped
from support.kept import is_full, with_room

import bslite
from bslite.dropin import blueprint, capture, kinds
from bslite.dropin.options import Options
from bslite.dropin.runner import runner_of
from bslite.engines.cpu import constants
from bslite.errors import UnsupportedError


class Encoder(nn.Module):
    """A small transformer: embeddings, learnt positions cut to the length, a mask, one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(64, 16)
        self.query, self.key, self.value = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, ids: Any, mask: Any) -> Any:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        q, k, v = (f(x).view(*ids.shape, 2, 8).transpose(1, 2) for f in (self.query, self.key, self.value))
        far = (1.0 - mask[:, None, None, :].float()) * -1e9
        y = (torch.softmax(q @ k.transpose(2, 3) / 8**0.5 + far, -1) @ v).transpose(1, 2)
        return self.norm(x + y.reshape(x.shape))


class Asks(nn.Module):
    """Computes something else for long inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.fc(x) if x.shape[1] > 10 else self.fc(x).relu()


class Unrolled(nn.Module):
    """Goes step by step along the length, which a trace writes out."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        h = x[:, 0]
        for i in range(1, x.shape[1]):
            h = torch.tanh(self.fc(x[:, i] + h))
        return h


class Listens(nn.Module):
    """Convolution, pool and recurrent layer over a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool = nn.Conv1d(3, 8, 5, padding=2), nn.MaxPool1d(2)
        self.layer = nn.LSTM(8, 6, bidirectional=True, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.layer(self.pool(self.conv(x).relu()).transpose(1, 2))[0]


class PicksOfRows(nn.Module):
    """Indexes positions of every row, as language models do to pick tokens and to write masks."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("places", torch.tensor([[[2, 0], [1, 1]]]))

    def forward(self, x: Any) -> Any:
        rows = torch.arange(x.shape[0])
        picked = x[rows[:, None, None], self.places]
        whole = x[rows[:, None, None, None], torch.arange(x.shape[1])[None, None, None, :]]
        return picked.relu(), whole.tanh(), x[rows, self.places[0, 0, :1]].sigmoid()


def text(batch: int, length: int) -> tuple[Any, Any]:
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, length // 2 :] = 0
    return torch.randint(50, (batch, length)), mask


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    """No test needs gradients."""
    with torch.no_grad():
        yield


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was traced."""
    made: list[Any] = []
    trace = capture.trace

    def counted(*args: Any, **kwargs: Any) -> Any:
        made.append(args)
        return trace(*args, **kwargs)

    monkeypatch.setattr(capture, "trace", counted)
    return made


def same_bits(fast: Any, net: Any, *args: Any) -> None:
    """The results are those of the module when it is traced at these sizes alone."""
    assert torch.equal(fast(*args), wrapped(net)(*args))
    agree(fast, net, *args)


def test_random_lengths_take_two_traces_and_bounded_memory(
    traces: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_room(monkeypatch, 1500)
    net = Encoder().eval()
    fast = wrapped(net)
    lengths = random.Random(0)
    fast(*text(1, 9))
    for _ in range(25):
        fast(*text(1, lengths.randrange(2, 64)))
    assert len(traces) == 2
    by_bslite(fast)
    kept, state = runner_of(fast).kinds.made.values(), runner_of(fast)._state
    assert is_full(kind.operations() for kind in kept)
    assert 5 < len(kept) < 25
    assert state is not None
    assert len(state.executables) == len(kept)
    gc.collect()
    held = [x for x in gc.get_objects() if isinstance(x, bslite.ModelSpec) and x.name == "Encoder"]
    assert len(held) <= 2 * (len(kept) + 1)  # as it is and simplified; the first's weights serve the others


def test_other_lengths_are_what_a_trace_of_their_own_gives(traces: list[Any]) -> None:
    net = Encoder().eval()
    fast = wrapped(net)
    for batch in (1, 2):
        for length in (9, 5, 17):
            fast(*text(batch, length))
    assert len(traces) == 4  # a batch of one is for itself
    for batch, length in ((1, 21), (3, 12), (2, 64)):
        same_bits(fast, net, *text(batch, length))
    by_bslite(fast)


def test_signals_of_other_lengths_take_two_traces(traces: list[Any]) -> None:
    net = Listens().eval()
    fast = wrapped(net)
    for length in (40, 31, 64, 7):
        agree(fast, net, torch.randn(2, 3, length))
    assert len(traces) == 2
    same_bits(fast, net, torch.randn(3, 3, 50))
    by_bslite(fast)


def test_images_of_other_sizes_take_two_traces(net: Any, fast: Any, traces: list[Any]) -> None:
    for side in (9, 12, 8, 20):
        same = torch.randn(2, 3, side, side + 1)
        agree(fast, net, same)
    assert len(traces) == 2
    same_bits(fast, net, images(3, 14))


def test_a_size_of_one_is_for_itself(traces: list[Any]) -> None:
    net = Encoder().eval()
    fast = wrapped(net)
    for length in (9, 5, 1, 7):
        agree(fast, net, *text(2, length))
    assert len(traces) == 3


def test_each_answer_about_a_size_is_a_trace(traces: list[Any]) -> None:
    net = Asks().eval()
    fast = wrapped(net)
    for length in (20, 12, 8, 11, 5, 10, 30, 3):
        agree(fast, net, torch.randn(2, length, 4))
    assert len(traces) == 3


def test_a_length_that_is_written_out_is_traced_each_time(traces: list[Any]) -> None:
    net = Unrolled().eval()
    fast = wrapped(net)
    for length in (5, 3, 4, 3):
        agree(fast, net, torch.randn(2, length, 4))
    assert len(traces) == 3


def test_a_batch_that_could_not_be_free_is_not_called_one() -> None:
    class Fixes(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.relu(x) * len([0 for _ in range(x.shape[0])])

    fast = wrapped(Fixes())
    for batch in (1, 2, 3):
        fast(torch.randn(batch, 6))
    one, two, three = (kind.fixed_batch for kind in bslite.report(fast).kinds)
    assert one == capture.ONE
    assert two not in (one, "")
    assert three == capture.UNFREE


def test_an_index_along_all_rows_leaves_the_batch_free(traces: list[Any]) -> None:
    net = PicksOfRows().eval()
    fast = wrapped(net)
    for batch in (4, 2, 5):
        agree(fast, net, torch.randn(batch, 6))
    by_bslite(fast)
    assert len(traces) == 1


def test_nothing_is_collected_while_a_module_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, packing = [], []
    make = constants.make
    monkeypatch.setattr(constants, "make", lambda *a: (packing.append(gc.isenabled()), make(*a))[1])

    class Looks(Asks):
        look = staticmethod(seen.append)  # where nobody follows it

        def forward(self, x: Any) -> Any:
            self.look(gc.isenabled())
            return super().forward(x)

    fast = wrapped(Looks())
    fast(torch.randn(2, 5, 4))
    assert seen == [False] * 3  # run in eager mode, traced, and run again to be compared
    assert packing
    assert not any(packing)
    assert gc.isenabled()


def test_changed_weights_are_followed_at_every_size() -> None:
    net = Net().eval()
    fast = wrapped(net)
    for side in (9, 12, 15):
        fast(images(2, side))
    net.conv1.weight.mul_(2)
    for side in (9, 12, 15, 11):
        agree(fast, net, images(2, side))


def test_the_report_says_what_serves_a_size() -> None:
    fast = wrapped(Encoder())
    for length in (9, 5, 17):
        fast(*text(1, length))
    first, second, third = bslite.report(fast).kinds
    assert first.open_shapes == ()
    assert second.open_shapes == third.open_shapes == ((1, "L"), (1, "L"))
    told = str(bslite.report(fast))
    assert told.count("one of [1, L], [1, L] serves it") == 1
    assert "inputs 2 x [1, 5]; 2 x [1, 17]:" in told


WRITTEN_OUT = {
    "frac": lambda y: torch.frac(y * 3),
    "logit": lambda y: torch.logit(y, 1e-3),
    "sinc": torch.sinc,
    "matmul": lambda y: torch.linalg.matmul(y, y),
    "atleast": lambda y: y * torch.atleast_3d(y[0, 0]).sum(),
    "quantile": lambda y: y - torch.quantile(y.flatten(1), 0.5, 1).view(-1, 1, 1, 1),
    "cdist": lambda y: y + torch.cdist(y.flatten(2), y.flatten(2)).mean((1, 2)).view(-1, 1, 1, 1),
    "pdist": lambda y: y + F.pdist(y[0].flatten(1)).mean(),
    "block_diag": lambda y: y + torch.block_diag(y[0, 0], y[0, 1]).sum(),
    "embedding_bag": lambda y: y + F.embedding_bag(torch.tensor([[0, 1], [2, 0]]), y[0, 0]).sum(),
    "pad_sequence": lambda y: y + nn.utils.rnn.pad_sequence([y[0, 0], y[0, 1, 2:]]).sum(),
    "select_scatter": lambda y: torch.select_scatter(y, y[:, 0] * 2, 1, 2),
}


class BeforeGamma(nn.Module):
    """An operation that is written out in others where it has no builder, then one that stays torch's."""

    def __init__(self, between: Any) -> None:
        super().__init__()
        self.first, self.second, self.between = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), between

    def forward(self, x: Any) -> Any:
        y = self.second(self.between(self.first(x).sigmoid()))
        return self.second(torch.lgamma(y.abs() + 1))


@pytest.mark.parametrize(
    "name", ["frac", *(pytest.param(n, marks=pytest.mark.networks) for n in WRITTEN_OUT if n != "frac")]
)
def test_parts_of_a_size_serve_others_of_a_graph_written_out(name: str) -> None:
    net = BeforeGamma(WRITTEN_OUT[name]).eval()
    fast = wrapped(net, quiet=False, fallback="silent")
    for side in (12, 14, 16, 18):
        agree(fast, net, images(2, side))
    seen = bslite.report(fast)
    assert seen.calls_in_torch == {}
    assert len(seen.kinds) == 4
    assert all(0 < kind.torch_share < 1 for kind in seen.kinds)


@pytest.mark.parametrize(
    "make",
    [Net, pytest.param(lambda: BeforeGamma(torch.tanh), marks=pytest.mark.networks)],
    ids=["whole", "parts"],
)
def test_sizes_are_measured_where_their_work_is_another(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among sizes whose work is within `ALIKE` of one that was measured, none is measured; the first is an
    export of its own.
    """
    measured: list[int] = []
    tune = kinds.tune

    def counted(blueprint: Any, tensors: Any, inputs: Any, *how: Any) -> Any:
        measured.append(inputs[0].shape[2])
        return tune(blueprint, tensors, inputs, *how)

    monkeypatch.setattr(kinds, "tune", counted)
    net = make().eval()
    fast = wrapped(net, quiet=False, fallback="silent", tune=True, threads=1)
    for side in (10, 12, 14, 16, 18, 40, 12, 60, 70, 13, 11):
        agree(fast, net, images(2, side))
    assert measured == [10, 12, 40]
    runner_of(fast).forget()
    assert runner_of(fast).kinds.tuned == []


def test_a_choice_of_parts_that_does_not_serve_a_size_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is lacking at that size only is said, or is an error."""
    net = BeforeGamma(torch.tanh).eval()
    fast = wrapped(net, quiet=False)
    spec, draw = blueprint.Blueprint.spec, blueprint.draw

    def refuses(self: Any, *args: Any) -> Any:
        if not self.surveyed:
            raise UnsupportedError("at this size")
        return spec(self, *args)

    monkeypatch.setattr(blueprint.Blueprint, "spec", refuses)
    monkeypatch.setattr(blueprint, "draw", lambda c, name, _: draw(c, name, frozenset({"conv2d"})))
    assert "lgamma" in said(fast, images(2, 12))[0]
    assert said(fast, images(2, 14)) == []
    assert "tanh" in said(fast, images(2, 16))[0]
    agree(fast, net, images(2, 16))
    assert bslite.report(fast).calls_in_torch == {}
    for held in (runner_of(fast), runner_of(fast).kinds):
        monkeypatch.setattr(held, "options", Options("error", False))
    with pytest.raises(UnsupportedError, match="tanh"):
        fast(images(2, 18))


class Joined(nn.Module):
    """Convolutions in a row, whose runs by bands are kept; the second input may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)
        self.last = nn.Conv2d(32, 8, 3, padding=1)

    def forward(self, x: Any, y: Any = None) -> Any:
        z = torch.relu(self.second(torch.relu(self.first(x))))
        return self.last(torch.cat([z, z if y is None else y], 1))


def test_calls_with_other_inputs_have_runs_of_their_own() -> None:
    net = Joined().eval()
    fast = bslite.optimize(net, tune=False, threads=1)
    x, y = torch.randn(1, 3, 64, 64), torch.randn(1, 16, 64, 64)
    for given in ((x,), (x, y)):
        agree(fast, net, *given)
    assert bslite.report(fast).calls_in_torch == {}
