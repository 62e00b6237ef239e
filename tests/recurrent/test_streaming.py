"""Streaming: steps and chunks give the bits of the whole sequence; what mixes steps is refused by name."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.graphs import one_op
from support.noise import noise
from support.torch_modules import Made
from support.torch_three_way import check_by_torch, leaves
from torch import nn

import bslite
from bslite import InputError, ModelSpec, SpecError, UnsupportedError

pytestmark = [pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")]
T, N = 7, 3


class Words(nn.Module):
    """Tokens to the next token's probabilities, ``[N, T] -> [N, T, 30]``."""

    def __init__(self, kind: str = "LSTM", **extra: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 12)
        self.rnn = getattr(nn, kind)(12, 19, num_layers=2, batch_first=True, dropout=0.3, **extra)
        self.norm = nn.LayerNorm(extra.get("proj_size", 19))
        self.out = nn.Linear(extra.get("proj_size", 19), 30)

    def forward(self, ids: Any) -> Any:
        return torch.softmax(self.out(torch.relu(self.norm(self.rnn(self.words(ids))[0]))), -1)


class Frames(nn.Module):
    """Time first, flattened for its linear layer, a gate beside; also makes the last state and step."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.rnn, self.out, self.gate = getattr(nn, kind)(5, 9), nn.Linear(9, 4), nn.Linear(5, 4)

    def forward(self, x: Any) -> Any:
        y, last = self.rnn(x)
        flat = self.out(y.reshape(-1, 9)).reshape(T, N, 4)
        h = last[0] if isinstance(last, tuple) else last
        return torch.log_softmax(flat * torch.sigmoid(self.gate(x)), 2), y.mean(2, keepdim=True), h, y[-1]


def example(module: nn.Module) -> Any:
    torch.manual_seed(0)
    return torch.randint(0, 30, (N, T)) if isinstance(module, Words) else torch.randn(T, N, 5)


def described(module: nn.Module) -> tuple[ModelSpec, Any]:
    x = example(module)
    with pytest.warns() if isinstance(module, Frames) else np.errstate():
        return bslite.from_torch(module.eval(), (x,)), x.numpy()


MODELS: dict[str, Any] = {
    "LSTM": lambda: Words(), "GRU": lambda: Words("GRU"), "RNN": lambda: Words("RNN"),
    "RNN relu": lambda: Words("RNN", nonlinearity="relu"), "projected": lambda: Words(proj_size=7),
    "no bias": lambda: Words("GRU", bias=False), "frames LSTM": lambda: Frames("LSTM"),
    "frames GRU": lambda: Frames("GRU"),
}  # fmt: skip


@pytest.mark.parametrize("kind", MODELS)
def test_both_ways_of_cutting_give_the_bits_of_the_whole(kind: str) -> None:
    module = MODELS[kind]()
    spec, x = described(module)
    axis = 1 if isinstance(module, Words) else 0
    whole = check_by_torch(spec, module, x)

    session = bslite.Session(spec, batch=N if axis else None)
    singles = [leaves(session.step(piece)) for piece in np.moveaxis(x, axis, 0)]
    assert session.steps == T
    session.reset()
    chunks = [leaves(session.run(piece)) for piece in np.split(x, [2, 3, 6], axis)]
    state = session.state
    for i, (y, last) in enumerate(zip(whole, chunks[-1], strict=True)):
        if y.ndim == 3 and y.shape[axis] == T:
            assert np.stack([s[i] for s in singles], axis).tobytes() == y.tobytes()
            assert np.concatenate([c[i] for c in chunks], axis).tobytes() == y.tobytes()
        else:
            assert last.tobytes() == singles[-1][i].tobytes() == y.tobytes()
    session.reset()
    session.run(x)
    assert {k: v.tobytes() for k, v in session.state.items()} == {k: v.tobytes() for k, v in state.items()}
    for threads in (1, 2):
        again = bslite.Session(spec, batch=N if axis else None, threads=threads)
        assert leaves(again.run(x))[0].tobytes() == whole[0].tobytes()


@cache
def words(kind: str) -> ModelSpec:
    torch.manual_seed(0)
    return described(Words(kind))[0]


@settings(deadline=None, max_examples=12)
@given(st.sampled_from(["LSTM", "GRU"]), st.integers(1, 5), st.lists(st.integers(0, 6), max_size=4))
def test_any_cut_any_batch(kind: str, batch: int, cuts: list[int]) -> None:
    spec = words(kind)
    ids = np.random.default_rng(batch).integers(0, 30, (batch, T))
    session = bslite.Session(spec, batch=batch)
    pieces = [p for p in np.split(ids, sorted(cuts), 1) if p.size]
    got = [session.run(p) if p.shape[1] > 1 else session.step(p[:, 0])[:, None] for p in pieces]
    assert np.concatenate(got, 1).tobytes() == bslite.run(spec, ids, threads=1).tobytes()


@pytest.fixture
def spec() -> ModelSpec:
    return described(Words())[0]


@pytest.fixture
def ids() -> Any:
    return example(Words()).numpy()


@pytest.fixture
def session(spec: ModelSpec) -> bslite.Session:
    return bslite.Session(spec, batch=N)


def test_sessions_share_weights_and_nothing_else(spec: ModelSpec, ids: Any) -> None:
    want = bslite.run(spec, ids)
    a, b = bslite.Session(spec, batch=N), bslite.Session(spec, batch=1)
    for t in range(T):  # in turns, one of them on other data
        assert a.step(ids[:, t]).tobytes() == want[:, t].tobytes()
        assert b.step(ids[1:2, t]).tobytes() == want[1:2, t].tobytes()

    from bslite.engines.cpu.engine import engine_for

    models = [m for s in spec.__dict__["_streams"].values() for m in s._models.values()]
    assert len(models) == 2
    assert all(engine_for(m).derived.shared is engine_for(spec).derived.shared for m in models)


@pytest.mark.parametrize(("kind", "count"), [("LSTM", 2), ("GRU", 1)])
def test_an_initial_state_that_is_given(kind: str, count: int) -> None:
    """For all layers at once."""

    def forward(net: Any, x: Any, *state: Any) -> Any:
        state = tuple(s.transpose(0, 1) for s in state)
        return net.rnn(x, state if count == 2 else state[0])[0]

    x, *state = torch.randn(N, T, 5), *(torch.randn(N, 2, 9) for _ in range(count))
    module = Made(forward, rnn=getattr(nn, kind)(5, 9, num_layers=2, batch_first=True))
    spec = bslite.from_torch(module.eval(), (x, *state))
    names = [i.name for i in spec.inputs[1:]]
    held = {name: s.numpy() for name, s in zip(names, state, strict=True)}
    with pytest.raises(InputError, match=f"also takes {', '.join(names)}, which are no sequences"):
        bslite.Session(spec, batch=N)
    with pytest.raises(InputError, match="no held input 'other'"):
        bslite.Session(spec, batch=N, held={**held, "other": held[names[0]]})
    with pytest.raises(InputError, match=rf"input '{names[0]}': got \[2, 2, 9\], expected \[3, 2, 9\]"):
        bslite.Session(spec, batch=N, held={**held, names[0]: held[names[0]][:2]})
    session = bslite.Session(spec, batch=N, held=held)
    got = torch.stack([session.step(x[:, t]) for t in range(T)], 1)
    want = bslite.run(spec, [x, *state])
    assert torch.equal(got, want)
    zeros = {name: np.zeros_like(h) for name, h in held.items()}
    session.reset(held=zeros)
    assert torch.equal(session.run(x), bslite.run(spec, [x, *map(torch.from_numpy, zeros.values())]))


def test_a_learned_initial_state() -> None:
    """A parameter, the same for all of a batch."""
    module = Made(
        lambda net, x: net.rnn(x, net.first.expand(x.shape[0], -1)[None])[0],
        rnn=nn.GRU(5, 9, batch_first=True), first=nn.Parameter(torch.randn(1, 9)),
    )  # fmt: skip
    spec = bslite.from_torch(module.eval(), (torch.randn(N, T, 5),))
    x = noise(2, T, 5)
    session = bslite.Session(spec, batch=2)
    assert np.stack([session.step(x[:, t]) for t in range(T)], 1).tobytes() == bslite.run(spec, x).tobytes()


def test_state_is_read_set_and_reset(spec: ModelSpec, ids: Any, session: Any) -> None:
    first = session.run(ids)
    kept = session.state
    assert list(kept) == ["rnn.lstm.h", "rnn.lstm.c", "rnn.lstm#2.h", "rnn.lstm#2.c"]
    assert all(v.shape == (N, 19) and v.any() for v in kept.values())
    then = session.run(ids)
    assert then.tobytes() != first.tobytes()
    session.state = kept
    assert session.run(ids).tobytes() == then.tobytes()
    other = bslite.Session(spec, batch=N)
    other.state = kept
    assert other.run(ids).tobytes() == then.tobytes()
    other.state = kept
    other.reset(streams=[1])
    mixed = other.run(ids)
    assert mixed[1].tobytes() == first[1].tobytes()
    assert mixed[[0, 2]].tobytes() == then[[0, 2]].tobytes()
    with pytest.raises(InputError, match="there is no stream 3: they are numbered 0 to 2"):
        other.reset(streams=[3])


def test_wrong_states_are_named(session: Any) -> None:
    good = session.state
    with pytest.raises(InputError, match=r"'rnn.lstm.c' is float32 \[3, 18\], expected float32 \[3, 19\]"):
        session.state = {**good, "rnn.lstm.c": np.zeros((3, 18), np.float32)}
    with pytest.raises(InputError, match=r"'rnn.lstm.h' is float64 \[3, 19\], expected float32"):
        session.state = {**good, "rnn.lstm.h": np.zeros((3, 19))}
    with pytest.raises(InputError, match=r"missing: rnn\.lstm.h"):
        session.state = {k: v for k, v in good.items() if k != "rnn.lstm.h"}
    with pytest.raises(InputError, match=r"unknown: rnn\.h"):
        session.state = {**good, "rnn.h": good["rnn.lstm.h"]}
    with pytest.raises(InputError, match="got a list"):
        session.state = [1]


def test_nan_in_one_streams_state_stays_in_it(ids: Any, session: Any) -> None:
    clean = session.run(ids)
    session.reset()
    poisoned = session.state
    poisoned["rnn.lstm.h"][1, 4] = np.nan
    session.state = poisoned
    got = session.run(ids)
    assert np.isnan(got[1]).all()
    assert got[[0, 2]].tobytes() == clean[[0, 2]].tobytes()
    assert np.isnan(session.state["rnn.lstm#2.c"][1]).all()
    session.reset()
    assert session.run(ids).tobytes() == clean.tobytes()


def test_wrong_inputs_are_named_and_leave_the_state(spec: ModelSpec, ids: Any, session: Any) -> None:
    session.run(ids[:, :2])
    before = session.state
    for wrong, text in (
        (ids[:2, 0], r"'ids' of one time step is \[2\], expected \[3\]"),
        (ids[:, 0].astype(np.int32), "'ids' is int32, expected int64; bslite does not cast"),
        (3, "'ids' is a int; expected a numpy array"),
        ([ids[:, 0], ids[:, 0]], r"expected 1 sequence\(s\) \(ids\), got 2"),
        (np.array([0, 30, 1]), "layer 'words': index 30 is out of range"),
        (np.array([0, 2**40, 1]), "holds 1099511627776"),
    ):
        with pytest.raises(InputError, match=text):
            session.step(wrong)
    with pytest.raises(InputError, match=r"expected a chunk of time steps along axis 1"):
        session.run(ids[:, :0])
    with pytest.raises(InputError, match=r"of the chunk is \[2, 7\], expected \[3, 7\]"):
        session.run(ids[:2])
    assert {k: v.tobytes() for k, v in session.state.items()} == {k: v.tobytes() for k, v in before.items()}
    with pytest.raises(InputError, match="batch must be a positive integer, got 0"):
        bslite.Session(spec, batch=0)
    with pytest.raises(InputError, match="takes a ModelSpec, got int"):
        bslite.Session(3)  # type: ignore[arg-type]


class Mixing(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.rnn = nn.GRU(8, 8, batch_first=True, bidirectional=how == "bidirectional")
        self.conv, self.inner = nn.Conv1d(8, 8, 3, padding=1), nn.Conv1d(8, 8, 1)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.again, self.place = nn.GRU(8, 8, batch_first=True), nn.Parameter(torch.randn(T, 8))

    def forward(self, x: Any) -> Any:
        if self.how == "convolution":
            x = self.conv(x.transpose(1, 2)).transpose(1, 2)
        if self.how == "positions":
            x = x + self.place
        y, h = self.rnn(self.inner(x.transpose(1, 2)).transpose(1, 2))
        return {
            "bidirectional": lambda: y, "convolution": lambda: y, "positions": lambda: y,
            "mean": lambda: y.mean(1), "softmax": lambda: torch.softmax(y, 1), "flip": lambda: y.flip(1),
            "attention": lambda: self.attention(y, y, y)[0], "cumsum": lambda: y.cumsum(1),
            "spectrum": lambda: torch.fft.rfft(y, dim=1).abs(),
            "shift": lambda: y[:, 1:], "third": lambda: y[:, 2], "product": lambda: y @ y.transpose(1, 2),
            "joined": lambda: torch.cat([y, y], 1), "folded": lambda: y.reshape(-1, 4, T * 2),
            "broadcast": lambda: y + h.transpose(0, 1), "decoder": lambda: self.again(y, h)[0],
            "of the last": lambda: self.again(h.transpose(0, 1).repeat(1, T, 1))[0], "max": lambda: y.amax(1),
        }[self.how]()  # fmt: skip


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("bidirectional", r"layer 'rnn.gru#2' \(gru\): it goes through the sequence backwards"),
        ("convolution", r"layer 'conv' \(conv1d\): its windows reach over several time steps"),
        ("positions", r"layer 'add' \(add\): it takes other values for each of 7 steps"),
        ("mean", r"layer 'mean' \(mean\): it reduces over time"),
        ("max", "it reduces over time"),
        ("softmax", r"layer 'softmax' \(softmax\): it normalises over time"),
        ("flip", r"\(slice\): it takes steps 6:-1:-1 of 7 time steps"),
        ("attention", "attention"),
        ("cumsum", "it goes along time"),
        ("spectrum", "it transforms time"),
        ("shift", "it takes steps 1:7:1 of 7"),
        ("third", "it takes step 2 of 7"),
        ("product", "its matrices reach over time"),
        ("joined", "it joins along time"),
        ("folded", "it cuts the time axis up"),
        ("broadcast", "every step would depend on the last one"),
        ("decoder", r"layer 'again.gru' \(gru\): it starts from a state that is computed from the sequence"),
        ("of the last", "over something computed from the whole sequence"),
    ],
)
def test_what_mixes_time_steps_is_refused_by_name(how: str, text: str) -> None:
    spec = bslite.from_torch(Mixing(how).eval(), (torch.randn(4, T, 8),))
    with pytest.raises(UnsupportedError, match=text) as error:
        bslite.Session(spec)
    assert "cannot be streamed, time step by time step" in str(error.value)


class Filtered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.factors = nn.GRU(8, 8, batch_first=True), nn.Parameter(torch.randn(5, 2))

    def forward(self, x: Any) -> Any:
        waves = torch.fft.rfft(self.rnn(x)[0]) * torch.view_as_complex(self.factors)
        return torch.fft.irfft(waves, n=8)


def test_frequencies_of_features_are_streamed() -> None:
    x = noise(4, T, 8)
    spec = bslite.from_torch(Filtered().eval(), torch.from_numpy(x))
    session = bslite.Session(spec, batch=4)
    got = np.concatenate([session.run(x[:, :3]), session.run(x[:, 3:])], 1)
    assert got.tobytes() == bslite.run(spec, x).tobytes()


def test_nothing_to_stream() -> None:
    with pytest.raises(SpecError, match="has no recurrent layer"):
        bslite.Session(one_op("relu", ("N", 4)))


def test_a_step_model_is_a_model_like_any_other(spec: ModelSpec, ids: Any, tmp_path: Any) -> None:
    made = bslite.step_model(spec, batch=N)
    made.save(tmp_path / "step.safetensors")
    loaded = bslite.load(tmp_path / "step.safetensors")
    assert [i.name for i in loaded.inputs] == [
        "ids", "rnn.lstm.h", "rnn.lstm.c", "rnn.lstm#2.h", "rnn.lstm#2.c",
    ]  # fmt: skip
    state = [np.zeros((N, 19), np.float32)] * 4
    for t in range(3):
        y, *state = bslite.run(loaded, [ids[:, t : t + 1], *state])
    assert y.tobytes() == bslite.run(spec, ids)[:, 2:3].tobytes()


def test_states_whose_names_layers_have() -> None:
    module = nn.LSTM(5, 9, num_layers=2, proj_size=4)
    spec = bslite.from_state_dict("lstm", module.state_dict())  # its layers are l0, l0.h, l0.c, ...
    x = noise(T, N, 5)
    session = bslite.Session(spec, batch=N)
    y, h, c = bslite.run(spec, x)
    made = [session.step(row) for row in x]
    assert np.stack([m[0] for m in made]).tobytes() == y.tobytes()
    assert made[-1][1].tobytes() == h.tobytes()
    assert made[-1][2].tobytes() == c.tobytes()
    assert {k: v.shape for k, v in session.state.items()} == {
        "l0.h": (N, 4), "l0.c": (N, 9), "l1.h": (N, 4), "l1.c": (N, 9),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_torch_loop_that_carries_its_state(kind: str) -> None:
    """What a torch user writes: one step, the state handed back."""

    def forward(net: Any, x: Any, state: Any) -> Any:
        y, state = net.rnn(x[None], state)
        return net.out(y[0]), state

    module = Made(forward, rnn=getattr(nn, kind)(5, 9, num_layers=2), out=nn.Linear(9, 4)).eval()
    fast = bslite.optimize(module, tune=False, fallback="error")
    zeros = torch.zeros(2, N, 9)
    want_state = state = (zeros, zeros) if kind == "LSTM" else zeros
    with torch.no_grad():
        for _ in range(20):
            x = torch.randn(N, 5)
            y, state = fast(x, state)
            want, want_state = module(x, want_state)
            torch.testing.assert_close(y, want)
    from bslite.dropin.runner import runner_of

    runner = runner_of(fast)
    assert len(runner.kinds.made) == 1  # one export for all steps
    assert not runner.in_torch
    h, again = (s[0] if kind == "LSTM" else s for s in (state, want_state))
    torch.testing.assert_close(h, again)
    with torch.no_grad():  # a state kept by the caller is not written to
        kept = h.clone()
        fast(x, state)
        assert torch.equal(h, kept)


def test_latencies_on_the_command_line(call: Any, spec: ModelSpec, tmp_path: Any) -> None:
    spec.save(tmp_path / "words.safetensors")
    out = call("stream", tmp_path / "words.safetensors", "--steps", 30, "--batch", 2)
    assert "ids [2] per step, 30 steps, 4 states carried" in out
    assert all(f"{p} " in out for p in ("p50", "p90", "p99", "max", "mean"))
