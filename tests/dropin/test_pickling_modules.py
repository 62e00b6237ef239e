"""Modules whose classes say how they are pickled, as Keras's do: a copy for a trace shares their tensors."""

import logging
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bslite


class Saved:
    """Made anew of what was saved, with tensors of its own."""

    def __reduce__(self) -> Any:
        return type(self), ()


class Tool(Saved):
    """No module; it holds one of Python's."""

    def __init__(self) -> None:
        self.library: ModuleType = sys.modules["math"]

    def scaled(self, x: Tensor) -> Tensor:
        return x * self.library.sqrt(4)


class Chooses:
    """Asks itself for what it has not, which a new object cannot answer yet."""

    def __init__(self) -> None:
        self.kind = nn.functional

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kind, name)


class Layer(Saved, nn.Module):
    """Its parameters are known under other names than its forward reads them by."""

    def __init__(self) -> None:
        super().__init__()
        self.known = nn.ParameterDict({"layer/kernel": nn.Parameter(torch.randn(8, 8))})
        self.weights, self.tool, self.choice = [self.known["layer/kernel"]], Tool(), Chooses()

    def __call__(self, x: Tensor, **given: Any) -> Any:
        return super().__call__(x, mask=None, **given)

    def forward(self, x: Tensor, mask: Any = None) -> Any:
        made = self.choice.relu(self.tool.scaled(x @ self.weights[0]))
        return made if mask is None else made * mask


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Layer()

    def forward(self, x: Tensor) -> Any:
        return self.inner(x) + 1


@pytest.mark.parametrize("kind", [Layer, Whole])
def test_runs_with_the_weights_as_they_are(kind: Any) -> None:
    torch.manual_seed(0)
    plain, x = kind().eval(), torch.randn(3, 8)
    fast = bslite.optimize(plain, tune=False, fallback="error")
    layer = plain if kind is Layer else plain.inner
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(fast(x), plain(x))
            layer.weights[0].mul_(-0.5)


def test_training_is_torchs() -> None:
    torch.manual_seed(0)
    plain, x = Layer().train(), torch.randn(3, 8)
    grads = []
    for model in (plain, bslite.optimize(plain, tune=False, fallback="silent")):
        plain.zero_grad()
        model(x).square().sum().backward()
        grads.append(plain.weights[0].grad)
    torch.testing.assert_close(grads[1], grads[0])


class Constant(Saved, nn.Linear):
    """What is made of what was saved has other weights than those that it has by now."""

    def __init__(self) -> None:
        super().__init__(8, 8)
        nn.init.ones_(self.weight)


class Scale(Saved):
    def __init__(self) -> None:
        self.by = torch.ones(8)


class Ordinary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.scale, self.log = [Constant()], Scale(), logging.getLogger("bslite.tests")

    def forward(self, x: Tensor) -> Any:
        return self.hidden[0](x) * self.scale.by


def test_within_a_module_that_does_not() -> None:
    plain, x = Ordinary().eval(), torch.randn(3, 8)
    with torch.no_grad():
        plain.hidden[0].weight.mul_(0.5)
        plain.scale.by.mul_(3)
        fast = bslite.optimize(plain, tune=False, fallback="error")
        torch.testing.assert_close(fast(x), plain(x))
