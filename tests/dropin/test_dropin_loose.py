"""Tensors that are neither parameters nor buffers: state in plain attributes, numbers that a forward writes
down and then writes to.
"""

import warnings
from typing import Any

import pytest

import bslite
from bslite.errors import UnsupportedError

torch = pytest.importorskip("torch")
Module = torch.nn.Module
CALLS = 4


class Count(Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.number = torch.arange(3.0)

    def forward(self, x: Any) -> Any:
        self.number += 1
        return x * self.number.view(1, 3, 1, 1)


class Listed(Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.held = {"numbers": [torch.zeros(3)]}

    def forward(self, x: Any) -> Any:
        self.held["numbers"][0].add_(1)
        return x * self.held["numbers"][0].view(1, 3, 1, 1)


class Average(Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.mean = torch.nn.Conv2d(3, 3, 1), torch.zeros(3)

    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        self.mean.mul_(0.9).add_(y.detach().mean((0, 2, 3)), alpha=0.1)
        return y - self.mean.view(1, 3, 1, 1)


class Last(Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.last, self.count = torch.zeros(4, 3), 0

    def forward(self, x: Any) -> Any:
        self.last[self.count % 4] = x.mean((0, 2, 3))
        self.count += 1
        return x + self.last.sum(0).view(1, 3, 1, 1)


EVERYBODYS = torch.zeros(3)


class Global(Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        EVERYBODYS.add_(1)
        return x * EVERYBODYS.view(1, 3, 1, 1)


class OfTheClass(Module):  # type: ignore[misc]
    number = torch.zeros(3)

    def forward(self, x: Any) -> Any:
        self.number.add_(1)
        return x * self.number.view(1, 3, 1, 1)


class Closure(Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        number = torch.zeros(3)

        def counted(x: Any) -> Any:
            number.add_(1)
            return x * number.view(1, 3, 1, 1)

        self.counted = counted

    def forward(self, x: Any) -> Any:
        return self.counted(x)


@pytest.mark.filterwarnings("ignore:model .* runs in torch")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", [Count, Listed, Average, Last, Global, OfTheClass, Closure])
def test_state_goes_on_as_in_torch(kind: Any, training: bool) -> None:
    """A trace runs the forward, but no call is counted for it."""
    x, made = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)), []
    for wrapped in (False, True):
        EVERYBODYS.zero_()
        OfTheClass.number.zero_()
        torch.manual_seed(0)
        model = kind().train(training)
        call = bslite.optimize(model) if wrapped else model
        made.append([call(x).detach().clone() for _ in range(CALLS)])
    torch.testing.assert_close(made[1], made[0])


@pytest.mark.parametrize("kind", [Count, Listed])
def test_a_trace_leaves_the_module_as_it_was(kind: Any) -> None:
    model, alone = kind().eval(), kind().eval()
    with pytest.raises(UnsupportedError):
        bslite.from_torch(model, torch.rand(1, 3, 8, 8))
    x = torch.rand(1, 3, 8, 8)
    torch.testing.assert_close(model(x), alone(x))


class Unmeasured(tuple[Any, ...]):
    """As e3nn's irreps are: how many there are is said in another way."""

    def __len__(self) -> int:
        raise NotImplementedError


def test_containers_that_do_not_say_how_many_they_hold() -> None:
    class Scaled(Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.by = torch.nn.Linear(8, 8), Unmeasured([torch.full((8,), 2.0)])

        def forward(self, x: Any) -> Any:
            return self.linear(x) * self.by[0]

    model, x = Scaled().eval(), torch.rand(3, 8)
    with torch.no_grad():
        torch.testing.assert_close(bslite.optimize(model, fallback="error")(x), model(x))


def put(x: Any) -> Any:
    k = torch.tensor([1.0, 2.0, 3.0])
    k[0] = 5
    return x * k.view(1, 3, 1, 1)


def scaled(x: Any) -> Any:
    k = torch.tensor([1.0, 2.0, 3.0]).to(x.dtype)
    k /= k.sum()
    return x * k.view(1, 3, 1, 1)


def viewed(x: Any) -> Any:
    k = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    k[0].zero_()
    return x[..., :2] * k.sum()


def measured(x: Any) -> Any:
    k = torch.tensor([3.0, 2.0])
    k[0] = x.mean()
    return x * k[0] + k[1]


def returned(x: Any) -> Any:
    k = torch.tensor([1.0, 2.0, 3.0])
    other = k
    k += x.sum()
    return x * other.view(1, 3, 1, 1), k


def each(x: Any) -> Any:
    rows = []
    for i in range(3):
        row = torch.tensor([1.0, 2.0, 3.0])
        row[i] = x[0, i].mean()
        rows.append(row)
    return torch.stack(rows)


@pytest.mark.parametrize("function", [put, scaled, viewed, measured, returned, each])
def test_numbers_that_are_written_to(function: Any) -> None:
    """A forward has them anew at each call; bslite runs all of it."""

    class Numbers(Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return function(x)

    model, x = Numbers().eval(), torch.rand(1, 3, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimized = bslite.optimize(model)
        for _ in range(2):
            torch.testing.assert_close(optimized(x), model(x))
