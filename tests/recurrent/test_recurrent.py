"""Recurrent modules from torch: what torch returns, by every runner, for every shape they come in."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.check import assert_three_way
from support.graphs import one_op
from support.noise import noise
from support.torch_modules import Made
from support.torch_three_way import check_by_torch
from torch import nn

import bslite
from bslite import GraphBuilder, InputError, ModelSpec, SpecError, reference

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


def compare(module: nn.Module, *inputs: torch.Tensor) -> None:
    """Three-way, all outputs; then for another batch."""
    spec = bslite.from_torch(module.eval(), inputs)
    for xs in (inputs, tuple(x[:1] for x in inputs)):
        check_by_torch(spec, module, *xs)


@pytest.mark.parametrize("bias", [True, False], ids=["biased", "no bias"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN", "RNN relu", "LSTM projected"])
def test_modules(kind: str, bidirectional: bool, layers: int, bias: bool) -> None:
    name, _, what = kind.partition(" ")
    extra: dict[str, Any] = {"relu": {"nonlinearity": "relu"}, "projected": {"proj_size": 5}}.get(what, {})
    module = getattr(nn, name)(
        7, 18, num_layers=layers, bidirectional=bidirectional, bias=bias, batch_first=True, **extra
    )
    compare(module, torch.randn(3, 6, 7))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_from_a_state(kind: str) -> None:
    def forward(net: Any, *given: Any) -> Any:
        x, h, c = (v.transpose(0, 1) for v in given)
        return net.rnn(x, (h, c) if kind == "LSTM" else h)

    module = Made(forward, rnn=getattr(nn, kind)(5, 9, num_layers=2))
    compare(module, torch.randn(4, 3, 5), torch.randn(4, 2, 9), torch.randn(4, 2, 9))


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
def test_cells(kind: str) -> None:
    """A cell called step by step, its state handed on."""

    def forward(net: Any, x: Any) -> Any:
        state, made = None, []
        for t in range(3):
            state = net.cell(x[:, t], state)
            made.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(made, 1)

    compare(Made(forward, cell=getattr(nn, kind)(5, 9)), torch.randn(4, 3, 5))


def test_embedding_convolution_lstm_softmax() -> None:
    def forward(net: Any, ids: Any) -> Any:
        x = net.conv(net.words(ids)[:, None]).permute(0, 2, 1, 3).flatten(2)
        return torch.softmax(net.out(net.lstm(x)[0]), -1)

    tagger = Made(
        forward, words=nn.Embedding(30, 12), conv=nn.Conv2d(1, 4, 3, padding=1), out=nn.Linear(32, 5),
        lstm=nn.LSTM(48, 16, bidirectional=True, batch_first=True),
    )  # fmt: skip
    compare(tagger, torch.randint(0, 30, (3, 11)))


def single(op: str, steps: int, batch: int, size: int, hidden: int, lengths: bool, **attrs: Any) -> ModelSpec:
    """A model of one recurrent layer, its weights as torch would draw them."""
    rng = np.random.default_rng(0)
    k = {"lstm": 4, "gru": 3}.get(op, 1) * hidden
    edge = hidden**-0.5
    shapes = {"weight_ih": (k, size), "weight_hh": (k, hidden), "bias_ih": (k,), "bias_hh": (k,)}
    weights = {role: rng.uniform(-edge, edge, shape).astype(np.float32) for role, shape in shapes.items()}
    inputs = [(steps, batch, size), *([np.ones(batch, np.int64)] if lengths else [])]
    return one_op(op, *inputs, **weights, lengths=lengths, **attrs)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["lstm", "gru", "rnn"]), st.integers(1, 9), st.integers(1, 20), st.integers(1, 40),
    st.integers(1, 70), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1),
)  # fmt: skip
@example("gru", 1, 1, 20, 1, False, False, 1)
@example("rnn", 1, 1, 30, 1, False, False, 1)
def test_any_size(
    op: str, steps: int, batch: int, size: int, hidden: int, lengths: bool, reverse: bool, seed: int
) -> None:
    spec = single(op, steps, batch, size, hidden, lengths, reverse=reverse)
    rng = np.random.default_rng(seed)
    results: list[list[Any]] = [[], [], []]
    draws = -(-64 // (steps * batch * hidden))  # of a few values the peer's may all be exact by chance
    for _ in range(draws):
        inputs = [rng.standard_normal((steps, batch, size)).astype(np.float32)]
        if lengths:
            inputs.append(rng.integers(1, steps + 1, batch))
        got = bslite.run(spec, inputs)
        assert bslite.run(spec, inputs, threads=1).tobytes() == got.tobytes()
        others = (reference.run(spec, inputs, d)[0] for d in (np.float32, np.float64))
        for kept, one in zip(results, (got, *others), strict=True):
            kept.append(one)
    assert_three_way(*map(np.concatenate, results))


@pytest.mark.parametrize("op", ["lstm", "gru", "rnn"])
def test_ten_thousand_steps(op: str) -> None:
    spec = single(op, 10_000, 1, 8, 24, lengths=False)
    x = noise(10_000, 1, 8)
    exact, near = (reference.run(spec, [x], d)[0] for d in (np.float64, np.float32))
    assert_three_way(bslite.run(spec, x), near, exact)


def test_twenty_runs_give_the_same_bits_while_other_threads_run() -> None:
    spec = single("lstm", 50, 2, 64, 128, lengths=False)
    x = noise(50, 2, 64)
    want = bslite.run(spec, x, threads=1).tobytes()
    assert all(bslite.run(spec, x, threads=2).tobytes() == want for _ in range(20))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("length", [0, -1, 6])
def test_a_length_that_cannot_be(length: int, backend: str) -> None:
    spec = single("gru", 5, 3, 4, 8, lengths=True)
    x = np.zeros((5, 3, 4), np.float32)
    with pytest.raises(InputError, match=rf"layer 'layer': sequence length {length} is not between 1 and 5"):
        bslite.run(spec, [x, np.array([5, length, 1])], backend=backend)
    assert np.isfinite(bslite.run(spec, [x, np.array([5, 2, 1])], backend=backend)).all()


def test_wrong_weights_states_and_lengths_are_named() -> None:
    def refused(inputs: dict[str, tuple[int, ...]], shapes: dict[str, tuple[int, ...]], **attrs: Any) -> str:
        g = GraphBuilder("wrong")
        names = [g.input(k, s, dtype="int64" if k == "lengths" else "float32") for k, s in inputs.items()]
        g.params |= {k: np.zeros(s, np.float32) for k, s in shapes.items()}
        g.add("lstm", "layer", *names, params={k: k for k in shapes}, **attrs)
        with pytest.raises(SpecError) as error:
            g.build("layer")
        return str(error.value)

    good: dict[str, tuple[int, ...]] = {"weight_ih": (32, 5), "weight_hh": (32, 8)}
    x = {"x": (4, 2, 5)}
    assert "x [4, 2, 6] has 6 features, weight_ih [32, 5] expects 5" in refused({"x": (4, 2, 6)}, good)
    assert "weight_hh has shape [32, 9], expected [32, 8]" in refused(x, {**good, "weight_hh": (32, 9)})
    assert "needs parameter 'weight_hh'" in refused(x, {"weight_ih": (32, 5)})
    assert "bias_hh has shape [8], expected [32]" in refused(x, {**good, "bias_hh": (8,)})
    assert "weight_ih [30, 5] is not 4 gates" in refused(x, {"weight_ih": (30, 5), "weight_hh": (30, 8)})
    assert "got 1 inputs, expected 3: x, the initial state" in refused(x, good, initial_state=True)
    assert "the initial c is [2, 7], expected [2, 8]" in refused(
        {**x, "h": (2, 8), "c": (2, 7)}, good, initial_state=True
    )
    assert "the lengths are [3], expected [2]" in refused({**x, "lengths": (3,)}, good, lengths=True)


def test_any_number_of_steps_from_onnx() -> None:
    from support.onnx_models import helper, model, value

    w, r = noise(2, 36, 5), noise(2, 36, 9, seed=1)
    node = helper.make_node(
        "LSTM", ["x", "w", "r"], ["y", "h", "c"], direction="bidirectional", hidden_size=9
    )
    proto = model([node], [value("x", ["T", 3, 5])], ["y", "h", "c"], {"w": w, "r": r})
    spec = bslite.from_onnx(proto, shapes={"x": (4, 3, 5)})
    module = nn.LSTM(5, 9, bidirectional=True, bias=False)
    order = [0, 2, 3, 1]  # ONNX: input, output, forget, cell
    for d, side in enumerate(("", "_reverse")):
        for role, part in (("weight_ih_l0", w), ("weight_hh_l0", r)):
            rows = part[d].reshape(4, 9, -1)[order].reshape(36, -1)
            getattr(module, role + side).data = torch.from_numpy(rows)
    for steps in (1, 2, 30):
        x = torch.randn(steps, 3, 5)
        with torch.no_grad():
            y, (h, c) = module(x)
        got = bslite.run(spec, x)
        torch.testing.assert_close(got[0], y.reshape(steps, 3, 2, 9).transpose(1, 2))
        torch.testing.assert_close(got[1], h)
        torch.testing.assert_close(got[2], c)


def test_sums_of_whole_numbers_beyond_32_bits_are_refused() -> None:
    weights = {
        "weight_hh": np.full((4 * 300, 300), 32767, np.int32),
        "scale_hh": np.ones(4 * 300, np.float32),
    }
    spec = one_op("lstm_rounded", (1, 1, 1200), **weights)
    with pytest.raises(SpecError, match="beyond 32 bits"):
        bslite.run(spec, noise(1, 1, 1200))
