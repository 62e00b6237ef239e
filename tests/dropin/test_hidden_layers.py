"""Layers and tensors that torch does not know as a module's: in plain lists, in plain objects, global."""

import copy
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bslite
from bslite import UnsupportedError


class Box:
    """An object that is no module."""


class InList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.last = [nn.Linear(8, 8)], nn.Linear(8, 8)

    def hidden(self) -> Any:
        return self.layers[0]

    def forward(self, x: Tensor) -> Any:
        return self.last(self.hidden()(x))


class InBox(InList):
    def __init__(self) -> None:
        super().__init__()
        self.box: Any = Box()
        self.box.layer, self.layers = self.layers[0], []

    def hidden(self) -> Any:
        return self.box.layer


class InDict(InList):
    def __init__(self) -> None:
        super().__init__()
        self.named, self.layers = {"inner": (nn.Sequential(*self.layers),)}, []

    def hidden(self) -> Any:
        return self.named["inner"][0][0]


class Slotted:
    __slots__ = ("empty", "layer")


class InSlot(InBox):
    def __init__(self) -> None:
        super().__init__()
        box, self.box = self.box, Slotted()
        self.box.layer = box.layer


class InClosure(InList):
    def __init__(self) -> None:
        super().__init__()
        layer, self.layers = self.layers[0], []
        self.call: Any = lambda x: layer(x)

    def hidden(self) -> Any:
        return self.call.__closure__[0].cell_contents

    def forward(self, x: Tensor) -> Any:
        return self.last(self.call(x))


KINDS = [InList, InBox, InDict, InSlot, InClosure]
SEEN = [InList, InDict]  # layers in containers are; of those that objects and functions hold, the memory is
X = torch.linspace(-1, 1, 24).reshape(3, 8)


def halve(layer: Any) -> None:
    with torch.no_grad():
        layer.weight.mul_(0.5)


def replace_weight(layer: Any) -> None:
    layer.weight = nn.Parameter(layer.weight.detach() * 2, layer.weight.requires_grad)


def agree(fast: Any, plain: Any) -> None:
    torch.testing.assert_close(fast(X), plain(X))


def write_past_the_counter(layer: Any) -> None:
    layer.weight.data.mul_(-1)


def move(layer: Any) -> None:
    layer.weight.data = layer.weight.data * 2


IN_PLACE = [(kind, change) for kind in KINDS for change in (halve, write_past_the_counter, move)]
CHANGES = [*IN_PLACE, *((kind, replace_weight) for kind in SEEN)]


@pytest.mark.parametrize(("kind", "change"), CHANGES)
def test_changes_are_followed(kind: Any, change: Any) -> None:
    torch.manual_seed(0)
    plain = kind().eval()
    fast = bslite.optimize(plain, tune=False, fallback="error")
    with torch.no_grad():
        for _ in range(3):
            agree(fast, plain)
            change(plain.hidden())
        agree(fast, plain)


@pytest.mark.parametrize(("kind", "change"), CHANGES)
def test_changes_are_followed_in_training(kind: Any, change: Any) -> None:
    torch.manual_seed(0)
    plain = kind().train()
    plain.hidden().requires_grad_(False)
    fast = bslite.optimize(plain, tune=False)
    for _ in range(2):  # a warning, which fails here, says if torch runs it
        agree(fast, plain)
        change(plain.hidden())
    agree(fast, plain)


OUTSIDE = nn.Parameter(torch.eye(8))


class Global(InList):
    def hidden(self) -> Any:
        return lambda x: x @ OUTSIDE


class Plain(InList):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.eye(8).requires_grad_()

    def hidden(self) -> Any:
        return lambda x: x @ self.scale


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("kind", [*KINDS, Global, Plain])
def test_gradients_reach_what_no_parameter_is(kind: Any, mode: str) -> None:
    torch.manual_seed(0)
    plain = getattr(kind(), mode)()
    if mode == "eval":
        plain.last.requires_grad_(False)
    learnt = OUTSIDE if kind is Global else plain.scale if kind is Plain else plain.hidden().weight
    grads = []
    for model in (plain, bslite.optimize(plain, tune=False, fallback="silent")):
        learnt.grad = None
        model(X).square().sum().backward()
        grads.append(learnt.grad)
    torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_hidden_layer_may_learn_later(kind: Any) -> None:
    torch.manual_seed(0)
    plain = kind().train()
    plain.hidden().requires_grad_(False)
    fast = bslite.optimize(plain, tune=False, fallback="silent")
    fast(X).sum().backward()
    plain.hidden().requires_grad_(True)
    grads = []
    for model in (plain, fast):
        plain.hidden().weight.grad = None
        model(X).sum().backward()
        grads.append(plain.hidden().weight.grad)
    torch.testing.assert_close(grads[1], grads[0])


class Counts(InList):
    """Notes a running mean in a hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.BatchNorm1d(8)]  # type: ignore[list-item]


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_statistics_of_a_hidden_layer_are_those_of_the_calls(mode: str) -> None:
    torch.manual_seed(0)
    plain = getattr(Counts(), mode)()
    other = copy.deepcopy(plain)
    fast = bslite.optimize(plain, tune=False, fallback="silent")
    with torch.set_grad_enabled(mode == "train"):
        for _ in range(2):
            torch.testing.assert_close(fast(X), other(X))
    torch.testing.assert_close(plain.hidden().running_mean, other.hidden().running_mean)
    assert plain.hidden().num_batches_tracked == 2


def test_a_trace_changes_no_hidden_layer() -> None:
    model = Counts().eval()
    before = copy.deepcopy(model.hidden().state_dict())
    with pytest.raises(UnsupportedError):
        bslite.from_torch(model, X)
    torch.testing.assert_close(model.hidden().state_dict(), before)


class Noting(nn.Linear):
    def forward(self, x: Tensor) -> Any:
        self.seen = super().forward(x)
        return self.seen


class Notes(InList):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [Noting(8, 8)]


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_what_a_hidden_layer_notes_and_its_hooks(mode: str) -> None:
    noting, hooked, called = getattr(Notes(), mode)(), getattr(InList(), mode)(), []
    hooked.hidden().register_forward_hook(lambda *_: called.append(1))
    with torch.set_grad_enabled(mode == "train"):
        for model in (noting, hooked):
            fast = bslite.optimize(model, tune=False, fallback="silent")
            called.clear()
            fast(X)
            fast(2 * X)
    torch.testing.assert_close(noting.hidden().seen, noting.hidden()(2 * X))
    assert len(called) == 2


class Odd(InList):
    """Holds what is looked at on the way to its tensors."""

    def __init__(self) -> None:
        super().__init__()
        gone, nameless = Box(), type("Nameless", (), {"__module__": None})()
        self.proxies, self.nameless = [weakref.proxy(gone), weakref.proxy(OUTSIDE)], nameless
        self.vocabulary, self.parent = list(range(100_000)), [self]
        self.gaps = torch.tensor([1.0, torch.nan])
        self.coincide = self.gaps.clone().expand(3, 2)  # nobody can write to it

    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * self.gaps[0] * self.coincide[0, 0]


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_odd_things_beside(mode: str) -> None:
    plain = getattr(Odd(), mode)().requires_grad_(False)
    plain.hidden().requires_grad_(False)
    version = plain.gaps._version
    fast = bslite.optimize(plain, tune=False, fallback="error")
    with torch.set_grad_enabled(mode == "train"):
        agree(fast, plain)
    assert plain.gaps._version == version  # a NaN is equal to itself


def test_a_child_does_not_watch_its_parent() -> None:
    parent, child = nn.Linear(8, 8), InList().eval()
    parent.child, child.parent = child, [parent]
    fast = bslite.optimize(child, tune=False, fallback="error")
    with torch.no_grad():
        agree(fast, child)
        halve(parent)
        agree(fast, child)
    assert not bslite.report(fast).weights_followed
