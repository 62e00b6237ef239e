"""Layers and tensors that torch does not know as a module's, trained: in lists and objects by bslite, others
(closures, globals) by torch.
"""

import copy
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from support.training import step
from torch import Tensor, nn

import bslite
from bslite.dropin.runner import runner_of

R = torch.randn


class Box:
    """An object that is no module."""


class Slotted:
    __slots__ = ("held", "layer")


class Variable:
    """As Keras has it: an object holds the tensor, which torch knows by another way."""

    def __init__(self, value: Tensor, learns: bool = True) -> None:
        self._value = nn.Parameter(value, learns)

    @property
    def value(self) -> Tensor:
        return self._value


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(8, 8)


class InLists(Base):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(8, 8), [nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())]]
        self.scale = {"scale": R(8).requires_grad_(), "again": self.last.weight}

    def learnt(self) -> Iterable[Tensor]:
        first, (rest,) = self.layers  # type: ignore[misc]
        return [*first.parameters(), *rest.parameters(), self.scale["scale"]]  # type: ignore[union-attr]

    def forward(self, x: Tensor) -> Tensor:
        first, (rest,) = self.layers  # type: ignore[misc]
        made: Tensor = rest(first(x)) * self.scale["scale"] + x @ self.scale["again"]
        return self.last(made)


class InObjects(Base):
    def __init__(self) -> None:
        super().__init__()
        self.box: Any = Box()
        self.box.slots = Slotted()
        self.box.slots.held, self.box.slots.layer = [nn.Parameter(R(8, 8))], nn.LSTM(8, 8)

    def learnt(self) -> Iterable[Tensor]:
        return [*self.box.slots.held, *self.box.slots.layer.parameters()]

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.box.slots.layer(x @ self.box.slots.held[0])[0])


class InVariables(nn.Sequential):
    """The layers of a Sequential are what torch knows of it, and no more than that runs."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 8))
        self.kernel, self.bias, self.mean = Variable(R(8, 8)), Variable(R(8)), Variable(R(8), False)
        self.known = {"mean": self.mean.value}
        self[0].register_parameter("kernel", self.kernel.value)

    def learnt(self) -> Iterable[Tensor]:
        return [self.kernel.value, self.bias.value]

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x) @ self.kernel.value + self.bias.value
        mean = y.mean(0)
        with torch.no_grad():
            self.mean.value.copy_(0.9 * self.mean.value + 0.1 * mean)
        return y - mean


def trained(net: Any, fast: Any, steps: int = 3) -> tuple[list[Tensor], list[Tensor]]:
    """Results and gradients of some steps, of a module that is run through ``fast``; its buffers."""
    made = []
    learnt = {id(p): p for p in (*net.parameters(), *net.learnt()) if p.requires_grad}
    optimizer = torch.optim.SGD(learnt.values(), 0.05)
    for i in range(steps):
        torch.manual_seed(i)
        optimizer.zero_grad()
        made.append(step(fast, (R(5, 8),)).detach())
        made += [p.grad.clone() for p in learnt.values()]
        optimizer.step()
    return made, [b.clone() for m in _modules(net) for b in m.buffers()]


def _modules(net: Any) -> list[nn.Module]:
    return [net, *(m for group in getattr(net, "layers", []) for m in _flat(group))]


def _flat(group: Any) -> list[nn.Module]:
    return list(group) if isinstance(group, list) else [group]


@pytest.mark.parametrize("kind", [InLists, InObjects, InVariables])
def test_they_learn_in_bslite(kind: Any) -> None:
    torch.manual_seed(0)
    net = kind().train()
    peer, names = copy.deepcopy(net), list(net.state_dict())
    fast = bslite.optimize(net, tune=False, fallback="error")
    for got, want in zip(trained(net, fast), trained(peer, peer), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    if kind is InVariables:
        torch.testing.assert_close(net.mean.value, peer.mean.value)
    assert list(net.state_dict()) == names
    assert {id(p) for p in net.parameters()} == {id(p) for p in fast.parameters()}


def test_a_copy_learns_for_itself() -> None:
    net = InLists().train()
    fast = bslite.optimize(net, tune=False, fallback="error")
    step(fast, (R(5, 8),))
    other: Any = copy.deepcopy(fast)
    net.zero_grad()
    for p in (*net.learnt(), *other.learnt()):
        p.grad = None
    step(other, (R(5, 8),))
    assert all(p.grad is not None for p in other.learnt())
    assert all(p.grad is None for p in net.learnt())


def test_another_tensor_in_its_place_is_noticed() -> None:
    torch.manual_seed(0)
    net = InObjects().train()
    peer = copy.deepcopy(net)
    fast = bslite.optimize(net, tune=False, fallback="error")
    step(fast, (R(5, 8),))
    new = R(8, 8)
    for m in (net, peer):
        m.box.slots.held = [nn.Parameter(new.clone())]
        m.last.zero_grad()
    x = R(5, 8)
    torch.testing.assert_close(step(fast, (x,)), step(peer, (x,)))
    torch.testing.assert_close(net.box.slots.held[0].grad, peer.box.slots.held[0].grad)


OUTER, NORM = nn.Linear(8, 8), nn.BatchNorm1d(8)
SPACE: Any = Box()
SPACE.layer = nn.Linear(8, 8)
LAYERS = [nn.Linear(8, 8)]


class OfGlobals(Base):
    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = SPACE.layer(LAYERS[0](NORM(OUTER(x))))
        return self.last(made)


class OfATuple(Base):
    """A tuple's tensors cannot be others for a trace."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = (R(8, 8).requires_grad_(), R(8, 8).requires_grad_())

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x @ self.weights[0] @ self.weights[1])


def test_global_layers_learn_in_torch() -> None:
    torch.manual_seed(0)
    net = OfGlobals().train()
    learnt = [p for m in (OUTER, SPACE.layer, LAYERS[0], net) for p in m.parameters()]
    fast: Any = bslite.optimize(net, tune=False, fallback="silent")
    for _ in range(3):
        x = R(5, 8)
        gradients = []
        for module in (net, fast):
            before = NORM.num_batches_tracked.item()
            gradients.append(torch.autograd.grad(module(x).square().sum(), learnt))
            assert NORM.num_batches_tracked.item() == before + 1  # a trace moves no statistics
        torch.testing.assert_close(gradients[1], gradients[0])
        with torch.no_grad():
            for p in learnt:
                p.mul_(0.9)
    assert "takes for a constant" in next(iter(runner_of(fast).in_torch))


def test_global_layers_are_followed_in_eval_mode() -> None:
    net = OfGlobals().eval()
    NORM.eval()
    fast = bslite.optimize(net, tune=False, fallback="error")
    with torch.no_grad():
        for layer in (OUTER, SPACE.layer, LAYERS[0], NORM):
            x = R(5, 8)
            torch.testing.assert_close(fast(x), net(x))
            layer.weight.mul_(0.5)
        torch.testing.assert_close(fast(x), net(x))
    NORM.train()


def test_tensors_in_a_tuple_learn_in_torch() -> None:
    torch.manual_seed(0)
    net = OfATuple().train()
    fast: Any = bslite.optimize(net, tune=False, fallback="silent")
    x = R(5, 8)
    want = torch.autograd.grad(net(x).sum(), net.weights)
    torch.testing.assert_close(torch.autograd.grad(fast(x).sum(), net.weights), want)
    assert "takes for a constant" in next(iter(runner_of(fast).in_torch))
