"""LSTM, GRU and RNN of ONNX in forms that NumPy computes between pieces, against onnxruntime."""

from typing import Any

import numpy as np
import pytest
from support.onnx_models import helper, inputs_like, model, untyped
from support.onnx_peer import ort

import bslite

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FUNCTIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
STEPS, ROWS, FEATURES, HIDDEN = 5, 3, 4, 3


def made(
    op: str, way: str, lengths: Any = None, starts: str = "", peepholes: bool = False, **how: Any
) -> Any:
    """A model and inputs of it. ``starts``: the initial states that are given, "h", "c" or both."""
    rng = np.random.default_rng(0)
    ways, rows = 1 + (way == "bidirectional"), GATES[op] * HIDDEN

    def draw(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32) / 2

    feed = {"x": draw(STEPS, ROWS, FEATURES)}
    stored = {"w": draw(ways, rows, FEATURES), "r": draw(ways, rows, HIDDEN), "b": draw(ways, 2 * rows)}
    reads = ["x", "w", "r", "b", "", "", "", ""]
    if lengths is not None:
        feed["l"], reads[4] = np.array(lengths, np.int32), "l"
    for at, state in enumerate("hc"[: 1 + (op == "LSTM")], 5):
        if state in starts:
            feed[state], reads[at] = draw(ways, ROWS, HIDDEN), state
    if peepholes:
        stored["p"], reads[7] = draw(ways, 3 * HIDDEN), "p"
    names = ["y", "last", "cell"][: 2 + (op == "LSTM")]
    node = helper.make_node(
        op, reads[: 8 if op == "LSTM" else 6], names, "it", direction=way, hidden_size=HIDDEN, **how
    )
    return model([node], inputs_like(feed), untyped(*names), stored, 14), feed


def same(made: Any, feed: Any) -> bslite.CompiledModel:
    compiled = bslite.compile(made)
    wants = ort.InferenceSession(made.SerializeToString()).run(None, feed)
    for got, want in zip(compiled(feed).tuple(), wants, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return compiled


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("way", ["forward", "reverse", "bidirectional"])
def test_forms(op: str, way: str) -> None:
    count = FUNCTIONS[op] * (1 + (way == "bidirectional"))
    forms: list[dict[str, Any]] = [
        {"clip": 0.5}, {"clip": 0.5, "starts": "hc"}, {"clip": 1.0, "lengths": [1, 5, 2], "starts": "hc"},
    ]  # fmt: skip
    for name in ("HardSigmoid", "LeakyRelu", "Elu", "Softsign", "Sigmoid"):
        forms.append({"activations": [name] * count})
    for name in ("Affine", "ScaledTanh", "ThresholdedRelu"):
        numbers = [0.5, 0.6, 0.7, 0.8, 0.3, 0.2][:count]
        forms.append({"activations": [name] * count, "activation_alpha": numbers, "activation_beta": numbers})
    if op == "LSTM":
        forms += [{"input_forget": 1}, {"input_forget": 1, "peepholes": True, "starts": "hc"}]
        forms += [{"starts": "h"}, {"starts": "c"}, {"clip": 0.5, "peepholes": True, "starts": "hc"}]
    if op == "RNN":
        forms += [{"activations": ["Softplus"] * count}]
    if op == "GRU":
        forms += [{"clip": 0.7, "linear_before_reset": 1}]
    for form in forms:
        same(*made(op, way, **form))


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_sequences_of_no_steps(op: str) -> None:
    """The engine takes those of one step or more; once there is an empty one, NumPy computes."""
    for way in ("forward", "bidirectional"):
        proto, feed = made(op, way, lengths=[0, 5, 2], starts="hc")
        full = bslite.compile(proto)
        same(proto, {**feed, "l": np.array([1, 5, 2], np.int32)})
        full({**feed, "l": np.array([1, 5, 2], np.int32)})
        assert full.pieces == ["engine: 1 nodes"]
        assert "NumPy" in same(proto, feed).pieces[0]
        same(proto, {**feed, "l": np.zeros(3, np.int32)})
        with pytest.raises(bslite.InputError, match="sequence length 6 is not between 1 and 5"):
            full({**feed, "l": np.array([1, 6, 2], np.int32)})
        assert full.pieces == ["engine: 1 nodes"]
    exact = bslite.compile(proto, device="reference64")
    np.testing.assert_allclose(exact(feed)[0], bslite.compile(proto)(feed)[0], rtol=1e-5, atol=1e-6)


def test_what_is_wrong_is_said() -> None:
    wrong = {
        "activation 'Affine' without": {"activations": ["Affine"]},
        "activation 'Swish'": {"activations": ["Swish"]},
        r"a sequence length of \[1, 7, 2\]": {"activations": ["Elu"], "lengths": [1, 7, 2]},
    }
    for words, how in wrong.items():
        proto, feed = made("RNN", "forward", **how)
        compiled = bslite.compile(proto)
        with pytest.raises(bslite.BsliteError, match=rf"node 'it' \(RNN\).*{words}"):
            compiled(feed)
