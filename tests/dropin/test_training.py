"""Training through `optimize(training=True)`: the losses, gradients and buffers that torch has."""

import copy
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.training_nets import Words, images, picture_net, rows
from torch import Tensor, nn

import bslite
from bslite.dropin.runner import runner_of


class Scaled(nn.Module):
    """A layer whose weight is computed from parameters, as weight norms have it."""

    def __init__(self) -> None:
        super().__init__()
        self.direction, self.size = nn.Parameter(torch.randn(6, 12)), nn.Parameter(torch.ones(6, 1))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.size * self.direction / self.direction.norm(dim=1, keepdim=True)).relu()


class Mixed(nn.Module):
    """Layers around an operation that bslite has no op for."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.special.i0e(self.first(x).relu()))


NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "pictures": (picture_net, images),
    "rows": (lambda: nn.Sequential(nn.Linear(12, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Linear(7, 3)), rows),
    "a weight that is computed": (lambda: nn.Sequential(Scaled(), nn.Linear(6, 3)), rows),
    "torch in the middle": (Mixed, rows),
    "words": (Words, lambda n: torch.randint(0, 11, (n, 5))),
    "attention": (
        lambda: nn.TransformerEncoderLayer(12, 3, 20, batch_first=True), lambda n: torch.randn(n, 6, 12),
    ),
}  # fmt: skip


def twins(name: str) -> tuple[nn.Module, nn.Module, Callable[[int], Tensor]]:
    """A module, and one like it that bslite trains."""
    make, draw = NETS[name]
    torch.manual_seed(0)
    module = make().train()
    return module, bslite.optimize(copy.deepcopy(module), training=True, tune=False, fallback="silent"), draw


def alike(ours: Tensor, theirs: Tensor, what: str = "") -> None:
    scale = max(1.0, float(theirs.detach().abs().max()))
    np.testing.assert_allclose(ours.detach(), theirs.detach(), rtol=2e-4, atol=2e-5 * scale, err_msg=what)


def trained_in_bslite(module: nn.Module) -> None:
    assert runner_of(module).in_torch == {}


@pytest.mark.parametrize("name", NETS)
def test_steps_are_those_of_torch(name: str) -> None:
    theirs, ours, draw = twins(name)
    pairs = [(net, torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)) for net in (theirs, ours)]
    for step, n in enumerate((4, 4, 3, 4)):  # an epoch ends with what is left
        x, losses = draw(n), []
        for net, optimizer in pairs:
            torch.manual_seed(step)  # of dropouts
            optimizer.zero_grad()
            y = net(x)
            loss = F.cross_entropy(y.flatten(1), torch.arange(n) % 3)
            loss.backward()
            optimizer.step()
            losses.append(loss)
        alike(losses[1], losses[0], f"step {step}")
    for key, value in theirs.state_dict().items():
        alike(ours.state_dict()[key].double(), value.double(), key)
    trained_in_bslite(ours)
    with torch.no_grad():
        x = draw(2)
        alike(ours.eval()(x), theirs.eval()(x))


def test_gradients_add_up_and_go_on() -> None:
    """Over several losses, twice through one graph, to the input, and not to what is frozen."""
    theirs, ours, draw = twins("pictures")
    x = draw(4)
    grads = []
    for net in (theirs, ours):
        net[0].weight.requires_grad_(False)
        given = x.clone().requires_grad_()
        torch.manual_seed(1)
        y = net(given)
        y.square().sum().backward(retain_graph=True)
        y.sum().backward()
        torch.manual_seed(2)
        net(given * 2).sum().backward()
        assert net[0].weight.grad is None
        grads.append([given.grad, *(p.grad for p in net.parameters() if p.grad is not None)])
    assert len(grads[0]) == len(grads[1])
    for a, b in zip(grads[1], grads[0], strict=True):
        alike(a, b)
    trained_in_bslite(ours)


def test_statistics_go_on_without_gradients_and_stop_in_eval_mode() -> None:
    theirs, ours, draw = twins("rows")
    x = draw(5)
    with torch.no_grad():
        alike(ours(x), theirs(x))
    for net in (theirs, ours):
        net[1].eval()
        net(x).sum().backward()
    for key, value in theirs.state_dict().items():
        alike(ours.state_dict()[key].double(), value.double(), key)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        alike(a.grad, b.grad)
    trained_in_bslite(ours)


def test_what_torch_refuses_is_refused() -> None:
    _, ours, draw = twins("rows")
    y = ours(draw(3).requires_grad_())
    with torch.no_grad():
        ours[0].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_gradients_of_an_input_alone() -> None:
    theirs, ours, draw = twins("pictures")
    x, grads = draw(3), []
    for net in (theirs, ours):
        net.eval().requires_grad_(False)
        given = x.clone().requires_grad_()
        net(given).square().sum().backward()
        grads.append(given.grad)
    alike(grads[1], grads[0])
    trained_in_bslite(ours)


def test_hooks_inside_are_left_to_torch() -> None:
    _, ours, draw = twins("rows")
    seen = []
    ours[2].register_forward_hook(lambda *given: seen.append(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours(draw(3)).sum().backward()
    assert seen == [1]
    assert "forward hooks on layers inside the model" in next(iter(runner_of(ours).in_torch))


def test_who_trains() -> None:
    """By default bslite does in training mode; gradients in eval mode have to be asked for."""
    x = torch.randn(2, 3)
    for training, modes in ((None, (True, False)), (True, (True, True)), (False, (False, False))):
        for mode, ours in zip((True, False), modes, strict=True):
            net = nn.Linear(3, 2).train(mode)
            module = bslite.optimize(net, training=training, fallback="silent", tune=False)
            module(x).sum().backward()
            assert bool(runner_of(module).in_torch) is not ours, (training, mode)


def test_attributes_and_hooks_that_come_later_are_noticed() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.scale = nn.Linear(4, 3), 1.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) * self.scale

    ours, x, seen = bslite.optimize(Scaled().train(), training=True, tune=False), torch.ones(2, 4), []
    ours(x).sum().backward()
    ours.scale = 3.0
    ours.zero_grad()
    ours(x).sum().backward()
    assert ours.layer.bias.grad.tolist() == [6.0] * 3
    ours.layer.register_forward_hook(lambda *given: seen.append(1))
    with pytest.warns(UserWarning, match="forward hooks on layers inside the model"):
        ours(x)
    assert seen == [1]
