"""Attributes that a forward notes are results of its trace."""

import copy
import gc
import pickle
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import pytest
from support.dropin_models import by_bslite, nn, torch, wrapped
from support.training import alike

import bslite
from bslite.dropin.runner import runner_of
from bslite.dropin.structure import Structure

Tensor = torch.Tensor
R = torch.randn


@dataclass
class Seen:
    weights: Tensor
    length: int


class Attention(nn.Module):
    """Notes its weights, and a few other things."""

    weights: Any = None

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.qkv, self.scale = nn.Linear(width, 3 * width), 0.0

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        self.scale = q.shape[-1] ** -0.5
        self.weights = (q @ k.transpose(-1, -2) * self.scale).softmax(-1)
        self.seen = Seen(self.weights[0], x.shape[1])
        return self.weights @ v


class Maps(nn.Module):
    """Reads what its layers have noted in the same call."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(Attention() for _ in range(layers)))
        self.maps: Any = None

    def forward(self, x: Tensor) -> Tensor:
        made = self.layers(x)
        self.maps = {"all": [layer.weights for layer in self.layers], "of": (x, x.shape)}
        return made + self.maps["all"][0].mean()


def same_notes(net: Any, fast: Any, x: Tensor) -> None:
    for a, b in zip(net.layers, fast.layers, strict=True):
        torch.testing.assert_close(a.weights, b.weights)
        torch.testing.assert_close(a.seen.weights, b.seen.weights)
        assert (a.scale, a.seen.length) == (b.scale, b.seen.length)
        assert type(b.seen) is Seen
        assert type(b.seen.length) is int
    assert fast.maps["of"][0] is x
    assert fast.maps["of"][1] == net.maps["of"][1]
    assert all(w is layer.weights for w, layer in zip(fast.maps["all"], fast.layers, strict=True))


def test_notes_are_those_of_each_call() -> None:
    net = Maps().eval()
    fast = wrapped(copy.deepcopy(net))
    runner = runner_of(fast)
    with torch.no_grad():
        for batch, tokens in ((3, 7), (3, 7), (5, 7), (1, 7), (3, 9), (3, 11), (3, 12), (3, 7)):
            x = R(batch, tokens, 16)
            torch.testing.assert_close(fast(x), net(x))
            same_notes(net, fast, x)
            before = list(fast.maps["all"])
        net(x + 1), fast(x + 1)
        assert all(
            a is not b for a, b in zip(before, fast.maps["all"], strict=True)
        )  # which a caller may keep
        assert not runner.in_torch
        watch = runner._state.watch  # type: ignore[union-attr]
        fast.maps = fast.layers[0].weights = None  # a caller may reset them
        fast(x)
        net(x)
        same_notes(net, fast, x)
        assert runner._state.watch is watch
        assert runner.rebuilt == 0
        fast.layers[0].qkv.weight.add_(0.1)  # weights are followed as ever
        net.layers[0].qkv.weight.add_(0.1)
        torch.testing.assert_close(fast(x), net(x))
        same_notes(net, fast, x)


def test_tensors_that_were_noted_are_not_kept() -> None:
    """By what watches the module's tensors; a write to one is no change of the module."""
    fast, x = wrapped(Maps().eval()), R(2, 7, 16)
    with torch.no_grad():
        fast(x), fast(x)
        runner = runner_of(fast)
        state = runner._state
        noted = {id(t) for t in fast.maps["all"]}
        assert not noted & {id(t) for t in state.watch.tensors}  # type: ignore[union-attr]
        for t in fast.maps["all"]:
            t.zero_()
        fast(x)
        assert runner._state is state


def test_copies_and_threads() -> None:
    net = Maps().eval()
    fast, x = wrapped(net), R(2, 7, 16)
    with torch.no_grad():
        expected = fast(x)
        for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(net))):
            torch.testing.assert_close(other(x), expected)
            assert other.maps["all"][0] is not fast.maps["all"][0]
        errors: list[Any] = []

        def calls() -> None:
            try:
                with torch.no_grad():
                    for _ in range(20):
                        torch.testing.assert_close(fast(x), expected)
            except Exception as e:
                errors.append(e)

        threads = [threading.Thread(target=calls) for _ in range(3)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        assert not errors
    assert not runner_of(fast).in_torch


class Bound(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(8, 8)


def bound_forward(self: Any, x: Tensor) -> Tensor:
    self.hidden = self.line(x)
    return self.hidden.relu()


def test_a_forward_put_on_an_instance_notes_too() -> None:
    net: Any = Bound().eval()
    net.forward = bound_forward.__get__(net)
    fast, x = wrapped(net), R(4, 8)
    with torch.no_grad():
        for i in range(3):
            torch.testing.assert_close(fast(x + i), net.line(x + i).relu())
            torch.testing.assert_close(fast.hidden, net.line(x + i))


def test_shared_layers_and_defaults_of_a_class() -> None:
    shared = Attention()
    net = nn.Sequential(shared, nn.ReLU(), shared).eval()
    fast = wrapped(copy.deepcopy(net))
    with torch.no_grad():
        for _ in range(3):
            x = R(2, 5, 16)
            torch.testing.assert_close(fast(x), net(x))
            torch.testing.assert_close(fast[0].weights, net[0].weights)
    assert Attention.weights is None
    assert "weights" not in vars(Attention(4))


def test_bslite_runs_all_of_it() -> None:
    fast, x = wrapped(Maps().eval()), R(2, 7, 16)
    with torch.no_grad():
        fast(x)
    by_bslite(fast)


class Losses(nn.Module):
    """Notes a loss beside its result."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 8)
        self.extra: Any = None

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x).relu()
        self.extra = h.square().mean()
        return self.b(h)


def test_gradients_go_through_notes() -> None:
    torch.manual_seed(0)

    def run(module: Any, inputs: Any) -> Any:
        made = module(*inputs)
        (made.square().mean() + module.extra).backward()
        return made, module.extra.detach(), *(p.grad for p in module.parameters())

    alike(Losses().train(), [(R(5, 8),) for _ in range(3)], run)


class Child(nn.Module):
    def __init__(self, parent: Any) -> None:
        super().__init__()
        self.line, self.parent = nn.Linear(8, 8), [parent]

    def forward(self, x: Tensor) -> Tensor:
        return self.line(x) * self.parent[0].scale


class Parent(nn.Module):
    """Whose child reads what it notes."""

    def __init__(self) -> None:
        super().__init__()
        self.scale: Any = 1.0
        self.child = Child(self)

    def forward(self, x: Tensor) -> Tensor:
        self.scale = x.abs().max()
        return self.child(x)


@pytest.mark.parametrize("training", [False, True])
def test_a_layer_reads_what_the_module_that_holds_it_notes(training: bool) -> None:
    net = Parent().train(training)
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    with torch.set_grad_enabled(training):
        for _ in range(3):
            x = R(4, 8)
            torch.testing.assert_close(fast(x), net(x))
            torch.testing.assert_close(fast.scale, net.scale)


@dataclass
class Made:
    """Has more attributes than fields."""

    y: Tensor

    def __post_init__(self) -> None:
        self.weights = self.y.softmax(-1)


class Identities(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line, self.table = nn.Linear(8, 8), {"mine": 1}

    def forward(self, x: Tensor) -> Any:
        y = self.line(x)
        self.out = self.same = {"y": y}
        self.few, self.size, self.of, self.made = {1, 2}, y.shape, self.table, Made(y)
        return self.out


def test_notes_are_the_objects_that_eager_mode_has() -> None:
    net = Identities().eval()
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    with torch.no_grad():
        for batch in (4, 4, 5):
            x = R(batch, 8)
            made, want = fast(x), net(x)
            assert made is fast.out is fast.same
            assert fast.of is fast.table
            assert fast.few == {1, 2}
            fast.few.add(3)
            assert fast.size == net.size
            assert fast.size.numel() == batch * 8
            torch.testing.assert_close(made["y"], want["y"])
            torch.testing.assert_close(fast.made.weights, net.made.weights)


class Shares(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        y = self.line(x)
        self.out = self.same = {"y": y, "n": [y.mean()]}
        self.few, self.size = {1, 2}, y.shape
        return self.out


def test_what_is_shared_is_one_object() -> None:
    fast = wrapped(Shares().eval())
    with torch.no_grad():
        for batch in (4, 4, 5):
            assert fast(R(batch, 8)) is fast.out is fast.same
            assert fast.few == {1, 2}
            fast.few.add(3)
            assert (type(fast.size), fast.size) == (torch.Size, torch.Size([batch, 8]))
    by_bslite(fast)


@pytest.mark.parametrize("training", [False, True])
def test_a_note_dies_with_the_next(training: bool) -> None:
    fast = bslite.optimize(Losses().train(training), fallback="error", tune=False)
    with torch.set_grad_enabled(training):
        for _ in range(3):
            fast(R(4, 8))
        last = weakref.ref(fast.extra)
        fast.extra = None
        gc.collect()
    assert last() is None


@pytest.mark.parametrize("training", [False, True])
def test_a_function_that_knows_the_module_itself(training: bool) -> None:
    """In the place of a layer's forward, as tools that look at activations put it."""

    def spied() -> Any:
        torch.manual_seed(0)
        net: Any = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).train(training)
        layer, forward = net[0], net[0].forward

        def spy(x: Tensor) -> Tensor:
            layer.seen = forward(x)
            return layer.seen

        layer.forward = spy
        return net

    net, own = spied(), spied()
    fast = bslite.optimize(own, fallback="silent", tune=False)
    with torch.set_grad_enabled(training):
        for _ in range(3):
            x = R(4, 8)
            torch.testing.assert_close(fast(x), net(x))
            assert type(own[0].seen) is Tensor
            torch.testing.assert_close(own[0].seen, net[0].seen)


class Bag:
    """A container that torch knows, taken apart into lists that are made for that alone."""

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.a, self.b = a, b


torch.utils._pytree.register_pytree_node(
    Bag, lambda bag: ([[bag.a], [bag.b]], None), lambda made, _: Bag(made[0][0], made[1][0])
)


def test_containers_that_are_made_in_passing_are_not_shared() -> None:
    bags = [Bag(R(2) + i, R(2) - i) for i in range(200)]
    made = Structure(bags, lambda x: isinstance(x, Tensor))
    again = made.build(made.leaves)
    assert len(made.leaves) == 400
    assert all(a.a is b.a and a.b is b.b for a, b in zip(again, bags, strict=True))
