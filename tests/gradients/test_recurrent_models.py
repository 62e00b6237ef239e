"""Gradients of recurrent models: torch's autograd, weights as inputs, threads, a training beside torch's."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.check import assert_three_way
from torch import nn

import bslite
from bslite import reference
from bslite.errors import UnsupportedError
from bslite.spec import Array, GraphBuilder, ModelSpec


class Tagger(nn.Module):
    """A recurrent module, a linear layer on all that it makes, and a loss."""

    def __init__(self, recurrent: nn.Module, features: int) -> None:
        super().__init__()
        self.recurrent, self.head = recurrent, nn.Linear(features, 3)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        y, last = self.recurrent(x)
        states = sum((s * s).mean() for s in (last if isinstance(last, tuple) else (last,)))
        return nn.functional.cross_entropy(self.head(y).flatten(0, 1), target.flatten()) + states


MODELS = {
    "lstm": lambda: Tagger(nn.LSTM(5, 20, 2, bidirectional=True, batch_first=True), 40),
    "gru": lambda: Tagger(nn.GRU(5, 20, 2, batch_first=True), 20),
    "rnn": lambda: Tagger(nn.RNN(5, 20, nonlinearity="relu", bias=False, batch_first=True), 20),
}
#: Loops over time, forwards and backwards, of each.
LOOPS = {"lstm": 4, "gru": 2, "rnn": 1}


def autograd(module: nn.Module, x: torch.Tensor, target: torch.Tensor) -> list[dict[str, Array]]:
    """The gradients by torch in float32 and in float64, by name."""
    found = []
    for dtype in (torch.float32, torch.float64):
        module.to(dtype).zero_grad()
        given = x.to(dtype, copy=True).requires_grad_()
        module(given, target).backward()
        found.append({"x": given.grad.numpy(), **{n: p.grad.numpy() for n, p in module.named_parameters()}})
        module.zero_grad()
    module.to(torch.float32)
    return found


@pytest.mark.parametrize("kind", MODELS)
def test_gradients_are_autograds(kind: str) -> None:
    torch.manual_seed(1)
    module, x, target = MODELS[kind](), torch.randn(3, 4, 5), torch.randint(3, (3, 4))
    peer, truth = autograd(module, x, target)
    spec = bslite.from_torch(module.eval(), (x, target), dynamic_shapes={})
    names = ["x", *(name for name, _ in module.named_parameters())]
    opened = bslite.weights_as_inputs(spec)
    weights = [spec.params[i.name] for i in opened.inputs[2:]]
    for backward, given in (
        (bslite.gradient(spec, names), [x.numpy(), target.numpy()]),
        (bslite.gradient(opened, names), [x.numpy(), target.numpy(), *weights]),
    ):
        ran = Counter(node.op for node in backward.nodes)
        assert (ran[kind], ran[f"{kind}_steps"], ran[f"{kind}_deltas"]) == (0, LOOPS[kind], LOOPS[kind])
        exact = dict(zip(backward.labels, reference.run(backward, given), strict=True))
        ours = dict(zip(backward.labels, bslite.run(backward, given), strict=True))
        for name in names:
            size = np.linalg.norm(truth[name])
            assert np.linalg.norm(exact[f"d/{name}"] - truth[name]) <= 2.0**-22 * size, name
            assert_three_way(ours[f"d/{name}"], peer[name], truth[name], least=2.0**-24)


class Padded(nn.Module):
    """Sequences of several lengths, gone through from both ends; a loss of what is theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 18, bidirectional=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        y, h = self.gru(packed)
        return (nn.utils.rnn.pad_packed_sequence(y)[0] ** 2).sum() + h.sin().sum()


def test_gradients_of_padded_sequences() -> None:
    torch.manual_seed(2)
    module, x, lengths = Padded(), torch.randn(7, 4, 4), torch.tensor([3, 7, 1, 5])
    peer, truth = autograd(module, x, lengths)
    spec = bslite.from_torch(module.eval(), (x, lengths), dynamic_shapes={})
    backward = bslite.gradient(spec, [spec.inputs[0].name, *(n for n, _ in module.named_parameters())])
    ours = bslite.run(backward, [x.numpy(), lengths.numpy()])
    for name, got in zip(truth, list(ours)[1:], strict=True):
        assert_three_way(got, peer[name], truth[name], least=2.0**-24)


@pytest.mark.parametrize("op", ["lstm_steps", "gru_steps", "rnn_steps"])
def test_bits_do_not_depend_on_threads(op: str) -> None:
    rng = np.random.default_rng(3)
    rows = {"lstm_steps": 4, "gru_steps": 3, "rnn_steps": 1}[op] * 136
    shapes = [(3, 7, rows), (rows, 136), (rows,)]
    g = GraphBuilder("loop")
    spec = g.build(g.add(op, "y", *(g.input(f"x{i}", s) for i, s in enumerate(shapes))))
    backward = bslite.gradient(spec, [i.name for i in spec.inputs])
    given = [rng.standard_normal(i.example).astype(np.float32) * 0.3 for i in backward.inputs]
    one, two, three = (bslite.run(backward, given, threads=n) for n in (1, 2, 3))
    for a, b, c in zip(one, two, three, strict=True):
        assert a.tobytes() == b.tobytes() == c.tobytes()


def test_what_has_no_gradient_says_so() -> None:
    x = torch.randn(4, 2, 5)
    spec = bslite.from_torch(nn.LSTM(5, 8, proj_size=3, batch_first=True).eval(), (x,), dynamic_shapes={})
    with pytest.raises(UnsupportedError, match="op 'lstm' with weight_hr has no gradient"):
        bslite.gradient(spec)
    with pytest.raises(UnsupportedError, match="op 'lstm' with weight_hr takes constants, no values"):
        bslite.weights_as_inputs(spec)
    spec = bslite.from_torch(nn.GRU(5, 8, batch_first=True).eval(), (x,), dynamic_shapes={})
    names = [i.name for i in spec.inputs]
    once = bslite.gradient(spec, names)
    with pytest.raises(UnsupportedError, match="op 'gru_deltas' has no gradient"):
        bslite.gradient(once, names, of=once.labels[-1:])


class Characters(nn.Module):
    """What comes next, for each character."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(letters, 32, batch_first=True), nn.Linear(32, letters)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.head(self.lstm(x)[0]).flatten(0, 1), target.flatten())


def text() -> tuple[Array, int]:
    """The characters of one of the repository's own pages as numbers, and how many there are."""
    page = Path(__file__).parents[2] / "docs" / "architecture" / "recurrent.md"
    letters, numbers = np.unique(list(page.read_text().lower()), return_inverse=True)
    return numbers, len(letters)


def batch(numbers: Array, letters: int, step: int) -> tuple[Array, Array]:
    """Sequences of characters, one in each place of letters, and those that follow."""
    starts = (np.arange(8) * 457 + step * 31) % (len(numbers) - 11)
    window = numbers[starts[:, None] + np.arange(11)]
    return np.eye(letters, dtype=np.float32)[window[:, :-1]], window[:, 1:].astype(np.int64)


def training(spec: ModelSpec, batches: list[Any], rate: float) -> list[float]:
    """The loss of each step of plain gradient descent."""
    opened = bslite.weights_as_inputs(spec)
    names = [i.name for i in opened.inputs[2:]]
    step, weights = bslite.gradient(opened, names), [np.array(spec.params[name]) for name in names]
    losses = []
    for given in batches:
        loss, *grads = bslite.run(step, [*given, *weights])
        losses.append(float(loss))
        for weight, grad in zip(weights, grads, strict=True):
            weight -= rate * grad
    return losses


def test_a_character_model_learns_as_in_torch() -> None:
    torch.manual_seed(4)
    numbers, letters = text()
    batches = [batch(numbers, letters, step) for step in range(50)]
    module = Characters(letters)
    spec = bslite.from_torch(module.eval(), tuple(map(torch.from_numpy, batches[0])), dynamic_shapes={})
    ours = training(spec, batches, 2.0)
    module.to(torch.float64).train()
    descent, theirs = torch.optim.SGD(module.parameters(), 2.0), []
    for x, target in batches:
        loss = module(torch.from_numpy(x).double(), torch.from_numpy(target))
        descent.zero_grad()
        loss.backward()
        descent.step()
        theirs.append(float(loss.detach()))
    assert theirs[-1] < 0.85 * theirs[0]
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
