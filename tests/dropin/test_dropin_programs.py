"""Random forwards that write to arguments and to views: results, and what has become of the arguments."""

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
from support.dropin_models import nn, torch

import bslite

Tensor = torch.Tensor
Step = Callable[[Any, Tensor, Tensor, int], Any]


def sliced(m: Any, x: Tensor, y: Tensor, n: int) -> Any:
    return x[n : n + 2] if x.shape[0] > n + 1 else x[:1]


def put_row(m: Any, x: Tensor, y: Tensor, n: int) -> None:
    if x.shape[1:] == y.shape[1:]:
        x[0] = y[-1].clone()


def filled(m: Any, x: Tensor, y: Tensor, n: int) -> None:
    x[:, :1] = 0.5


def alike(function: Callable[[Tensor, Tensor], Any]) -> Step:
    return lambda m, x, y, n: function(x, y.clone()) if x.shape == y.shape else None


#: Each may write to x, and gives a new tensor, a view, or nothing.
STEPS: tuple[Step, ...] = (
    alike(lambda x, y: x.add_(y, alpha=0.5)), alike(lambda x, y: x.copy_(y)), alike(torch.add),
    sliced, put_row, filled,
    lambda m, x, y, n: x.mul_(0.7),
    lambda m, x, y, n: x[:1].neg_(),
    lambda m, x, y, n: x.masked_fill_(x > 0.5, 0.25),
    lambda m, x, y, n: x.t(),
    lambda m, x, y, n: torch.tanh(x),
    lambda m, x, y, n: m.fc(x) if x.shape[-1] == m.fc.in_features else None,
    lambda m, x, y, n: x.clone(),
    lambda m, x, y, n: torch.roll(x, 1, 0),
    lambda m, x, y, n: x.chunk(2)[n % 2] if x.shape[0] > 1 else None,
    lambda m, x, y, n: (x * 1.0).as_strided((2, 2), (1, 2)) if x.numel() > 4 else None,
)  # fmt: skip


class Program(nn.Module):
    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.steps = [
            (draw.randrange(len(STEPS)), draw.randrange(64), draw.randrange(64), draw.randrange(3))
            for _ in range(draw.randint(3, 9))
        ]
        self.results = [draw.randrange(64) for _ in range(2)]

    def forward(self, *inputs: Tensor) -> Any:
        held = list(inputs)
        for step, a, b, n in self.steps:
            made = STEPS[step](self, held[a % len(held)], held[b % len(held)], n)
            held += [] if made is None or any(made is x for x in held) else [made]
        return tuple(held[i % len(held)] * 2 for i in self.results)


def drawn(draw: random.Random, count: int, rows: int, width: int) -> list[Tensor]:
    """Inputs in either order of memory, or in parts of one tensor, which may overlap."""
    if count > 1 and draw.random() < 0.2:
        whole = torch.randn(2 * rows, width)
        return [whole[i * rows // 2 :][:rows] for i in range(count)]
    return [
        torch.randn(rows, width) if draw.random() < 0.7 else torch.randn(width, rows).t()
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(40))
def test_results_and_arguments_are_those_of_torch(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    count, rows, width = draw.randint(1, 3), draw.choice([4, 6]), draw.choice([4, 5])
    net = Program(draw, width).eval()
    fast = bslite.optimize(copy.deepcopy(net), tune=False, fallback="silent")
    for _ in range(3):
        inputs = drawn(draw, count, rows, width)
        others = copy.deepcopy(inputs)  # parts of one tensor stay such
        with torch.no_grad():
            made, want = fast(*inputs), net(*others)
        torch.testing.assert_close([*made, *inputs], [*want, *others])
