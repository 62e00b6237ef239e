"""Forwards that take elements by their places in memory: those of torch's memory, not of bslite's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.dropin_models import torch
from support.torch_modules import Fn

import bslite
from bslite.dropin.capture import ORDER
from bslite.dropin.runner import runner_of
from bslite.errors import UnsupportedError


def chunks(x: Any) -> Any:
    """Pieces of four positions that overlap by two, as Longformer makes them."""
    x = x.view(x.shape[0], x.shape[1] // 4, 4, x.shape[2])
    size, stride = list(x.shape), list(x.stride())
    size[1], stride[1] = 2 * size[1] - 1, stride[1] // 2
    return x.as_strided(size, stride)


def written_later(x: Any) -> Any:
    y = (x * 3).transpose(1, 2)
    z = y.as_strided((4,), (1,))
    y.add_(1)
    return z * 2


def written(x: Any) -> Any:
    y = (x * 3).transpose(1, 2)
    y.as_strided((4,), (1,)).add_(1)
    return y * 2


OURS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda x: chunks(torch.tanh(x)) * 2,
    "turned": lambda x: chunks(torch.tanh(x).transpose(0, 1)) * 2,
    "elements": lambda x: torch.tanh(torch.tanh(x).transpose(1, 2).as_strided((4,), (1,))),
    "an_offset": lambda x: torch.tanh(torch.tanh(x).transpose(1, 2).as_strided((4, 3), (3, 2), 5)),
    "repeated": lambda x: torch.tanh(torch.tanh(x).as_strided((3, 2, 5), (0, 10, 1))),
}
BESIDE: dict[str, Callable[[Any], Any]] = {  # in torch, the rest in bslite
    "an_input": lambda x: torch.tanh(torch.tanh(x.as_strided((4, 2), (1, 3))))
}
TORCHS: dict[str, Callable[[Any], Any]] = {
    "beyond": lambda x: torch.tanh(torch.tanh(x)[:1].as_strided((9, 5), (5, 1))),
    "before": lambda x: torch.tanh(torch.tanh(x)[1:].as_strided((2, 5), (5, 1))),
    "gaps": lambda x: torch.tanh(torch.tanh(x)[:, :2].as_strided((2, 5), (5, 1))),
    "written_later": written_later,
    "written": written,
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", [*OURS, *BESIDE, *TORCHS])
def test_places_in_memory_are_those_of_torch(name: str, training: bool) -> None:
    net = Fn((OURS | BESIDE | TORCHS)[name]).train(training)
    fast = bslite.optimize(net, training=training, tune=False, fallback="silent")
    plain, turned = torch.randn(8, 8, 5), torch.randn(8, 5, 8).transpose(1, 2)
    for x in (plain, plain, plain[:4], plain[:4], plain[:4], *([turned] * 3 if name in BESIDE else ())):
        given = x.detach().requires_grad_(training)
        peer = x.detach().requires_grad_(training)
        with torch.set_grad_enabled(training):
            made, want = fast(given), net(peer)
        torch.testing.assert_close(made, want)
        if training:
            made.square().sum().backward()
            want.square().sum().backward()
            torch.testing.assert_close(given.grad, peer.grad)
    reasons = [*runner_of(fast).in_torch]
    if name not in TORCHS:
        assert [why for why in reasons if "seldom" not in why and (name in OURS or why != ORDER)] == []
    else:
        assert any("takes the strides of" in why or "by way of strides" in why for why in reasons)


def test_torch_takes_them_from_what_bslite_has_made() -> None:
    """Doubles are torch's; what they are made of lies in memory in the order of its axes."""

    def forward(x: Any) -> Any:
        y = torch.tanh(torch.tanh(x).softmax(-1) @ x.mT).mT.double()
        return y.as_strided((4, 3), (1, 8)).float()

    net, x = Fn(forward).eval(), torch.randn(8, 8, 5)
    fast = bslite.optimize(net, tune=False, fallback="silent")
    with torch.no_grad():
        torch.testing.assert_close(fast(x), net(x))
    (kind,) = bslite.report(fast).kinds
    assert [part.runs_in for part in kind.parts] == ["bslite"]
    assert runner_of(fast).in_torch == {}


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("name", ["elements", "an_offset", "repeated"])
def test_what_is_computed_lies_in_memory_as_what_it_is_computed_of(name: str, first: int) -> None:
    net = Fn(OURS[name]).eval()
    fast = bslite.optimize(net, tune=False, fallback="silent")
    inputs = [torch.randn(8, 8, 5), torch.randn(8, 5, 8).transpose(1, 2)]
    with torch.no_grad():
        for x in (inputs[first], inputs[1 - first], inputs[first], torch.randn(4, 5, 8).transpose(1, 2)):
            torch.testing.assert_close(fast(x), net(x))
    assert set(runner_of(fast).in_torch) == {ORDER}


@pytest.mark.filterwarnings("ignore:.*the batch is fixed")
@pytest.mark.parametrize("name", [*OURS, *BESIDE, "beyond", "before", "gaps"])
def test_a_model_as_a_whole(name: str) -> None:
    net, x = Fn((OURS | BESIDE | TORCHS)[name]).eval(), torch.randn(8, 8, 5)
    if name not in OURS:
        with pytest.raises(UnsupportedError, match=r"as_strided.*of an input, of memory"):
            bslite.from_torch(net, x)
        return
    with torch.no_grad():
        np.testing.assert_allclose(bslite.run(bslite.from_torch(net, x), x.numpy()), net(x), rtol=1e-5)


def test_an_image_that_is_a_constant_may_be_a_result() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.layer = torch.full((1, 3, 1, 1), 0.4), torch.nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x: Any) -> Any:
            return self.layer(x - self.mean) + self.mean, self.mean.type_as(x)

    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    want = [y.detach() for y in net(x)]
    made = bslite.run(bslite.from_torch(net, (x,)), x.numpy())
    torch.testing.assert_close([torch.from_numpy(y) for y in made], want)
    fast = bslite.optimize(net.train(), tune=False, fallback="error")
    torch.testing.assert_close([y.detach() for y in fast(x)], want)
