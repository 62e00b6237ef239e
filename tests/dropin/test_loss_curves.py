"""Fifty steps of training on real data: the losses are torch's, and faults in gradients show in them."""

import copy
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bslite
from bslite import ops
from bslite.ops.values import Applied, Gradients, Value

ROOT = Path(__file__).parents[2]
STEPS, WINDOW = 50, 32
TINY = 5e-6  # the loss of a step is a float32 of about 3
Batch = Callable[[int, torch.dtype], tuple[Tensor, Tensor]]


class Letters(nn.Module):
    """What letter comes next, by a recurrent layer."""

    def __init__(self, cell: str, letters: int) -> None:
        super().__init__()
        self.table, self.cells = nn.Embedding(letters, 24), getattr(nn, cell)(24, 48, batch_first=True)
        self.scores = nn.Linear(48, letters)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(self.cells(self.table(x))[0])


def letters(cell: str) -> tuple[nn.Module, Batch]:
    """A model of the letters of the licence, a text that nobody rewrites, and windows of it."""
    text = (ROOT / "LICENSE").read_text()
    known = {letter: i for i, letter in enumerate(sorted(set(text)))}
    codes = torch.tensor([known[letter] for letter in text])

    def batch(step: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        starts = torch.randint(0, len(codes) - WINDOW, (16,), generator=torch.Generator().manual_seed(step))
        rows = torch.stack([codes[start : start + WINDOW + 1] for start in starts])
        return rows[:, :-1], rows[:, 1:]

    return Letters(cell, len(known)), batch


def digits() -> tuple[nn.Module, Batch]:
    """The network of the example, with batch norms and a dropout, and its pictures.

    It is made smooth: an element that is zero but for rounding makes curves part, torch's own, too.
    """
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import train_digits
    finally:
        sys.path.pop(0)
    images, _, labels, _ = train_digits.digits()

    def batch(step: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        some = torch.randperm(len(images), generator=torch.Generator().manual_seed(step))[:64]
        return images[some].to(dtype), labels[some]

    smooth = {nn.ReLU: nn.SiLU(), nn.MaxPool2d: nn.AvgPool2d(2)}
    return nn.Sequential(*(smooth.get(type(layer), layer) for layer in train_digits.network())), batch


def curve(model: nn.Module, batch: Batch, rate: float, dtype: torch.dtype = torch.float32) -> np.ndarray:
    """The loss of every step."""
    torch.manual_seed(1)  # of dropouts
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
    losses = []
    for step in range(STEPS):
        x, y = batch(step, dtype)
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def distances(name: str) -> tuple[float, float]:
    """How far the curves of bslite and of torch in float32 are from torch's in float64."""
    torch.manual_seed(0)
    (model, batch), rate = (digits(), 0.01) if name == "digits" else (letters(name), 0.5)
    truth = curve(copy.deepcopy(model).double(), batch, rate, torch.float64)
    ours = curve(bslite.optimize(copy.deepcopy(model), training=True, tune=False), batch, rate)
    assert truth[-1] < 0.7 * truth[0]
    return float(np.linalg.norm(ours - truth)), float(np.linalg.norm(curve(model, batch, rate) - truth))


@pytest.mark.parametrize("name", ["digits", "LSTM", "GRU", "RNN"])
def test_losses_are_those_of_torch(name: str) -> None:
    ours, torchs = distances(name)
    assert ours <= 4 * torchs + TINY


@pytest.mark.parametrize(
    ("name", "op", "place"),
    [("digits", "batch_norm_given", 0), ("digits", "silu", 0), ("LSTM", "lstm_steps", 1)],
    ids=["batch norms", "activations", "weights of the loop"],
)
def test_a_gradient_that_is_wrong_shows(
    name: str, op: str, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gradient of one input that is a twentieth too small."""
    rule = type(ops.get(op))
    right = rule.vjp

    def wrong(self: ops.Op, at: Applied, grad: Value) -> Gradients:
        made = dict(right(self, at, grad))
        return made | {place: made[place] * 0.95}

    monkeypatch.setattr(rule, "vjp", wrong)
    ours, torchs = distances(name)
    assert ours > 100 * (4 * torchs + TINY)
