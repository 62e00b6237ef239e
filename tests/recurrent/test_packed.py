"""Packed sequences from torch: what torch returns, with lengths that stay an input, by every runner."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from support.torch_modules import Made
from support.torch_three_way import check_by_torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import bslite
from bslite import InputError, SpecError, UnsupportedError
from bslite.dropin.runner import runner_of

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
T, N = 6, 4
DOWN, MIXED = [6, 5, 2, 2], [3, 6, 1, 4]


class Net(nn.Module):
    """Pack, recur, pad; everything that the two functions take can be chosen."""

    def __init__(
        self, kind: str = "LSTM", *, first: bool = True, in_order: bool = False, layers: int = 1,
        both: bool = False, state: bool = False, total: int | None = None, value: float = 0.0, **extra: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        extra |= {"num_layers": layers, "bidirectional": both, "dropout": 0.2 * (layers > 1)}
        self.rnn = getattr(nn, kind)(5, 9, batch_first=first, **extra)
        self.first, self.in_order, self.state, self.total, self.value = first, in_order, state, total, value

    def forward(self, x: Any, lengths: Any, *state: Any) -> Any:
        given = [s.transpose(0, 1) for s in state]
        hx = None if not given else tuple(given) if isinstance(self.rnn, nn.LSTM) else given[0]
        packed = pack_padded_sequence(x, lengths, self.first, self.in_order)
        y, last = self.rnn(packed, hx)
        padded, found = pad_packed_sequence(y, self.first, self.value, self.total)
        return padded, found, *(last if isinstance(last, tuple) else (last,))


def three_way(module: nn.Module, *inputs: torch.Tensor, spec: Any = None) -> Any:
    """Compare with torch; returns the model, which is made for these inputs unless given."""
    spec = spec or bslite.from_torch(module.eval(), inputs)
    check_by_torch(spec, module.eval(), *inputs)
    return spec


CASES: dict[str, dict[str, Any]] = {
    "any order": {},
    "sorted": {"in_order": True},
    "time first": {"first": False},
    "time first, sorted, two layers, both ways": {
        "first": False, "in_order": True, "layers": 2, "both": True, "kind": "GRU",
    },
    "two layers, both ways, from a state": {"layers": 2, "both": True, "state": True},
    "GRU, from a state": {"kind": "GRU", "state": True},
    "GRU, sorted, from a state": {"kind": "GRU", "state": True, "in_order": True},
    "RNN, both ways": {"kind": "RNN", "both": True},
    "RNN relu, no bias": {"kind": "RNN", "nonlinearity": "relu", "bias": False},
    "projected": {"proj_size": 4, "both": True},
    "a padding value": {"value": -1.5},
    "total length": {"total": 6},
    "total length, longer, a padding value": {"total": 9, "value": 2.0, "first": False},
}  # fmt: skip


def arguments(
    *, kind: str = "LSTM", first: bool = True, layers: int = 1, both: bool = False, state: bool = False,
    in_order: bool = False, seed: int = 0, **extra: Any,
) -> tuple[Any, ...]:  # fmt: skip
    torch.manual_seed(seed)
    x = torch.randn(N, T, 5) if first else torch.randn(T, N, 5)
    lengths = torch.tensor(DOWN if in_order else MIXED)
    count = (2 if kind == "LSTM" else 1) * state
    return x, lengths, *(torch.randn(N, layers * (1 + both), 9) for _ in range(count))


@pytest.mark.filterwarnings("ignore:.*the batch is fixed")
@pytest.mark.parametrize("name", CASES)
def test_modules(name: str) -> None:
    net, given = Net(**CASES[name]), arguments(**CASES[name])
    spec = three_way(net, *given)
    if given[0].shape[0] == N:  # the batch is free, and so are the lengths
        other = arguments(**CASES[name], seed=1)
        lengths = torch.tensor([6, 6, 1, 1] if CASES[name].get("in_order") else [1, 2, 6, 1])
        three_way(net, other[0], lengths, *other[2:], spec=spec)
        order = [0, 3] if CASES[name].get("in_order") else [2, 0]
        three_way(net, *(x[order] for x in (other[0], lengths, *other[2:])), spec=spec)

    fast = bslite.optimize(net, tune=False, fallback="error")
    with torch.no_grad():
        for got, want in zip(fast(*given), net(*given), strict=True):
            torch.testing.assert_close(got, want)
    assert not runner_of(fast).in_torch
    assert "100.0 % of the flops" in str(bslite.report(fast))


@pytest.mark.parametrize("name", ["any order", "GRU, sorted, from a state", "projected"])
def test_the_padded_length_stays_free(name: str) -> None:
    net, (x, lengths, *state) = Net(**CASES[name]).eval(), arguments(**CASES[name])
    spec = bslite.from_torch(net, (x, lengths, *state), dynamic_shapes="auto")
    longer = torch.cat([x, x.flip(1)], 1)
    for batch, steps, given in [(4, 6, lengths), (4, 12, 2 * lengths), (1, 3, torch.tensor([3]))]:
        three_way(net, longer[:batch, :steps], given, *(s[:batch] for s in state), spec=spec)


def test_operations_on_packed_data() -> None:
    """Embedding and dropout of the packed data, a linear layer of the packed outputs, the sum of each."""

    def forward(net: Any, ids: Any, lengths: Any) -> Any:
        packed = pack_padded_sequence(ids, lengths.cpu(), batch_first=True, enforce_sorted=False)
        inner = PackedSequence(net.drop(net.words(packed.data)), *packed[1:])
        y, _ = net.rnn(inner)
        y = PackedSequence(torch.relu(net.out(y.data)), *y[1:])
        padded, found = pad_packed_sequence(y, batch_first=True, total_length=ids.shape[1])
        return padded, padded.sum(1) / found[:, None]

    net = Made(
        forward, words=nn.Embedding(20, 5), drop=nn.Dropout(0.5), out=nn.Linear(18, 3),
        rnn=nn.GRU(5, 9, bidirectional=True, batch_first=True),
    )  # fmt: skip
    three_way(net, torch.randint(0, 20, (N, T)), torch.tensor([3, 5, 1, 4]))


@pytest.mark.filterwarnings("ignore:.*the batch is fixed")
def test_lengths_that_are_constants() -> None:
    """Python's own: part of the model."""

    def forward(net: Any, x: Any) -> Any:
        _, (h, _) = net.rnn(pack_padded_sequence(x, [4, 4, 2, 1]))
        y, _ = net.rnn(pack_padded_sequence(x, [2, 3, 1, 4], enforce_sorted=False))
        return h, pad_packed_sequence(y, total_length=4)[0]

    three_way(Made(forward, rnn=nn.LSTM(5, 9)), torch.randn(T, N, 5))


@pytest.fixture(scope="module")
def plain() -> Any:
    torch.manual_seed(0)
    net = Net(in_order=True).eval()
    return net, bslite.from_torch(net, arguments(in_order=True))


WRONG: dict[str, tuple[list[int], str, str]] = {
    "zero": ([6, 2, 0, 0], "sequence length 0 is not between 1 and 6", "greater than 0"),
    "negative": ([6, 2, 2, -1], "sequence length -1 is not between 1 and 6", "greater than 0"),
    "longer than x": ([7, 2, 2, 1], "sequence length 7 is not between 1 and 6", r"\w"),
    "unsorted": (
        [6, 2, 3, 1],
        "sequence length 3 follows a shorter one; with enforce_sorted=True",
        "sorted in decreasing order",
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_wrong_lengths(plain: Any, name: str, backend: str) -> None:
    net, spec = plain
    lengths, ours, torchs = WRONG[name]
    x = torch.randn(N, T, 5)
    with pytest.raises(InputError, match=f"layer 'sequence_lengths': {ours}"):
        bslite.run(spec, [x, torch.tensor(lengths)], backend=backend)
    assert torch.isfinite(bslite.run(spec, [x, torch.tensor(DOWN)], backend=backend)[0]).all()
    fast = bslite.optimize(net, tune=False, fallback="silent")
    with torch.no_grad(), pytest.raises((RuntimeError, ValueError), match=torchs):
        fast(x, torch.tensor(lengths))


def test_lengths_of_the_wrong_size_or_dtype(plain: Any) -> None:
    net, spec = plain
    x = torch.randn(N, T, 5)
    with pytest.raises(
        InputError, match=r"input 'lengths': got \[3\], expected \[N\]; axis 0 is 3, should be 4"
    ):
        bslite.run(spec, [x, torch.tensor([3, 2, 1])])
    with pytest.raises(InputError, match=r"'lengths' is torch.int32, expected torch.int64"):
        bslite.run(spec, [x, torch.tensor(DOWN, dtype=torch.int32)])
    with pytest.raises(UnsupportedError, match=r"Expected `len\(lengths\)` to be equal to batch_size"):
        bslite.from_torch(net, (x, torch.tensor([3, 2, 1])))
    g = bslite.GraphBuilder("wrong")
    names = g.input("lengths", (3,), dtype="float32"), g.input("x", (5, 3, 2))
    g.add("sequence_lengths", "checked", *names)
    with pytest.raises(SpecError, match=r"layer 'checked'.*lengths \(input 0\) are float32, expected int64"):
        g.build("checked")


def test_a_total_length_that_is_too_short() -> None:
    net = Net(total=4).eval()
    x = torch.randn(N, T, 5)
    spec = three_way(net, x, torch.tensor([3, 4, 1, 2]))
    with pytest.raises(InputError, match="sequence length 5 is not between 1 and 4"):
        bslite.run(spec, [x, torch.tensor([3, 5, 1, 2])])


def test_batches_padded_further_than_their_longest(plain: Any) -> None:
    """torch cuts its output to the longest length, which no model of fixed shapes can: torch runs."""
    net, spec = plain
    x, lengths = torch.randn(N, T, 5), torch.tensor([4, 3, 3, 1])
    with pytest.raises(InputError, match=r"the longest sequence has 4 of 6 steps: cut x to it, or give"):
        bslite.run(spec, [x, lengths])
    fast = bslite.optimize(net, tune=False)
    with torch.no_grad():
        fast(x, torch.tensor(DOWN))
        with pytest.warns(
            UserWarning, match="runs in torch: layer 'sequence_lengths': the longest sequence has 4"
        ):
            got = fast(x, lengths)
        assert got[0].shape == (N, 4, 9)
        for y, want in zip(got, net(x, lengths), strict=True):
            assert torch.equal(y, want)
    assert bslite.run(spec, [x, torch.tensor(DOWN)])[0].shape == (N, T, 9)


def test_nothing_in_the_padding_shows() -> None:
    net = Net("GRU", both=True, layers=2).eval()
    x, lengths = torch.randn(N, T, 5), torch.tensor(MIXED)
    spec = bslite.from_torch(net, (x, lengths))
    poisoned = x.clone()
    for n, length in enumerate(MIXED):
        poisoned[n, length:] = torch.nan
    want = bslite.run(spec, [x, lengths])
    for y, clean in zip(bslite.run(spec, [poisoned, lengths]), want, strict=True):
        assert torch.equal(y, clean)
    inside = x.clone()
    inside[0, 2, 1] = torch.nan
    got = bslite.run(spec, [inside, lengths])
    with torch.no_grad():
        for y, peer in zip(got, net(inside, lengths), strict=True):
            assert torch.equal(torch.isnan(y), torch.isnan(peer))
    assert torch.isnan(got[0][0, :3]).all()
    assert torch.equal(got[0][1:], want[0][1:])


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda y, h: y, "it returns a PackedSequence, or its data"),
        (lambda y, h: y.data.mean(0), "it uses the data of a PackedSequence in aten.mean"),
        (lambda y, h: torch.softmax(y.data, 0), "it uses the data of a PackedSequence in aten.softmax"),
        (lambda y, h: h * y.batch_sizes.sum(), "it uses the batch_sizes of a PackedSequence otherwise"),
        (lambda y, h: h[:, y.sorted_indices], "it uses the sorted_indices of a PackedSequence otherwise"),
    ],
)
def test_other_uses_of_a_packed_sequence_stay_in_torch(use: Any, text: str) -> None:
    def forward(net: Any, x: Any, lengths: Any) -> Any:
        return use(*net.rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)))

    net = Made(forward, rnn=nn.GRU(5, 5, batch_first=True)).eval()
    x, lengths = torch.randn(N, T, 5), torch.tensor(MIXED)
    with pytest.raises(UnsupportedError, match=text):
        bslite.from_torch(net, (x, lengths))
    fast = bslite.optimize(net, tune=False)
    with torch.no_grad(), pytest.warns(UserWarning, match=text):
        got = fast(x, lengths)
    for y, want in zip(got, net(x, lengths), strict=True):
        assert y is want is None or torch.equal(y, want)


def test_a_packed_sequence_as_an_argument_stays_in_torch() -> None:
    net = nn.LSTM(5, 9).eval()
    packed = pack_padded_sequence(torch.randn(T, N, 5), DOWN)
    fast = bslite.optimize(net, tune=False)
    with torch.no_grad(), pytest.warns(UserWarning, match="an argument is a PackedSequence"):
        assert torch.equal(fast(packed)[0].data, net(packed)[0].data)


def test_other_threads_pack_as_ever_during_an_export() -> None:
    from bslite.frontends.torch.packed.mode import packing

    x, lengths = torch.randn(T, N, 5), torch.tensor(DOWN)
    with packing(nn.LSTM(5, 9)), ThreadPoolExecutor(1) as pool:
        found = pool.submit(pack_padded_sequence, x, lengths).result()
    assert torch.equal(found.data, pack_padded_sequence(x, lengths).data)


def test_stand_ins_run_in_torch_too() -> None:
    """A part of the graph that stays in torch: here all of it, the export itself run."""
    from bslite.frontends.torch.capture import Example, export

    for net in (Net(both=True, layers=2, state=True), Net("GRU", in_order=True, value=3.0)):
        given = arguments(
            both=net.rnn.bidirectional, layers=net.rnn.num_layers, state=net.state, in_order=net.in_order
        )
        program = export(net.eval(), Example(given, {}), None).module()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for got, want in zip(program(*given), net(*given), strict=True):
                torch.testing.assert_close(got, want)
            with pytest.raises(ValueError, match="the longest sequence has 5 of 6"):
                program(given[0], torch.tensor([5, 4, 1, 1]), *given[2:])
