"""Forwards that put another tensor in the place of a parameter or buffer, and callers that put another
forward in the place of a drop-in's.
"""

import copy
import pickle
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.dropin_models import by_bslite
from torch import Tensor, nn

import bslite

R = torch.randn


def averages(m: Any, x: Tensor) -> Tensor:
    m.mean = 0.9 * m.mean + 0.1 * x.detach().mean(0)
    return x - m.mean


def averages_unseen(m: Any, x: Tensor) -> Tensor:
    m._buffers["mean"] = 0.9 * m.mean + 0.1 * x.detach().mean(0)
    return x - m.mean


def decays(m: Any, x: Tensor) -> Tensor:
    m.scale = nn.Parameter(m.scale.detach() * 0.9)
    made: Tensor = x * m.scale
    return made


def registers(m: Any, x: Tensor) -> Tensor:
    m.register_buffer("late", x.detach().mean(0))
    made: Tensor = x * m.late
    return made


def forgets(m: Any, x: Tensor) -> Tensor:
    made = x if m.extra is None else x * m.extra
    m.extra = None
    return made


class Layer(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function, self.linear = function, nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("extra", torch.full((4,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, self.linear(x))


@pytest.mark.parametrize("mode", ["eval", "train", "train without gradients"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("function", [averages, averages_unseen, decays, registers, forgets])
def test_what_is_assigned_counts_at_the_next_call(
    function: Callable[..., Tensor], nested: bool, mode: str
) -> None:
    torch.manual_seed(0)
    net: nn.Module = nn.Sequential(Layer(function), nn.Linear(4, 4)) if nested else Layer(function)
    net.train(mode != "eval")
    peer = copy.deepcopy(net)
    fast = bslite.optimize(net, tune=False, fallback="silent")
    with torch.set_grad_enabled(mode == "train"):
        for _ in range(4):
            x = R(3, 4)
            got, want = fast(x), peer(x)
            torch.testing.assert_close(got, want)
            if mode == "train":
                ours, theirs = (
                    torch.autograd.grad(y.sum(), list(m.parameters()), allow_unused=True)
                    for y, m in ((got, net), (want, peer))
                )
                torch.testing.assert_close(ours, theirs)
            assert list(net.state_dict()) == list(peer.state_dict())
            torch.testing.assert_close(list(net.state_dict().values()), list(peer.state_dict().values()))


def doubling(module: nn.Module) -> None:
    """As libraries wrap a forward: what was there is called."""
    before = module.forward
    module.forward = types.MethodType(lambda _, x: before(2 * x) + 1, module)


def test_a_forward_on_a_drop_in_calls_the_one_before() -> None:
    net = nn.Sequential(nn.Linear(4, 2)).eval()
    peer = copy.deepcopy(net)
    fast = bslite.optimize(net, tune=False, fallback="error")
    doubling(peer)
    doubling(fast)
    x = R(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), peer(x))
        torch.testing.assert_close(copy.copy(fast)(x), peer(x))
        torch.testing.assert_close(fast(x / 2) - 1, net(x))  # the original has its own
        doubling(fast)  # twice is twice
        doubling(peer)
        torch.testing.assert_close(fast(x), peer(x))
        by_bslite(fast)
        del fast.forward
        torch.testing.assert_close(fast(x), net(x))
    with pytest.raises(AttributeError):
        del fast.forward


def test_a_forward_on_the_original_is_what_runs() -> None:
    net = nn.Sequential(nn.Linear(4, 2)).eval()
    doubling(net)
    fast = bslite.optimize(net, tune=False, fallback="silent")
    x = R(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), net(x))
        assert "forward" in vars(net)


class Encodes(nn.Sequential):
    def encode(self, x: Tensor) -> Tensor:
        return self[0](x) * 2


def test_a_forward_on_a_drop_in_is_pickled_with_it() -> None:
    fast: Any = bslite.optimize(Encodes(nn.Linear(4, 2)).eval(), tune=False, fallback="silent")
    fast.forward = fast.encode
    other = pickle.loads(pickle.dumps(fast))
    x = R(3, 4)
    torch.testing.assert_close(other(x), fast(x))
    assert other.forward.__self__ is other


def test_a_forward_on_the_original_is_deleted_through_a_drop_in() -> None:
    net: Any = Encodes(nn.Linear(4, 2)).eval()
    net.forward = net.encode
    fast = bslite.optimize(net, tune=False, fallback="silent")
    del fast.forward
    assert "forward" not in vars(net)


def test_what_is_made_as_a_drop_in_is_made_is_no_drop_in() -> None:
    """As a slice of a Sequential makes another of its own class."""
    fast: Any = bslite.optimize(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), tune=False)
    x = R(3, 4)
    part, other = fast[:1], type(fast)(nn.Linear(4, 2))
    torch.testing.assert_close(part(x), fast[0](x))
    assert other(x).shape == (3, 2)
    assert type(part) is type(other) is nn.Sequential
    replica = fast[0]._replicate_for_data_parallel()  # made without its class being called
    assert type(replica) is nn.Linear
    bare = type(fast).__new__(type(fast))
    assert type(bare) is type(fast)
