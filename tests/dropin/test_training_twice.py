"""Second derivatives of what trains in bslite: torch's, by computing the part again."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from support.training import alike
from torch import Tensor, nn
from torch.autograd import grad

import bslite
from bslite.errors import UnsupportedError


def critic() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 6, 3),
        nn.Dropout(0.2), nn.Tanh(), nn.Flatten(), nn.Linear(6 * 4 * 3, 1),
    )  # fmt: skip


class Broken(nn.Module):
    """Two parts, with an operation between them that bslite has no op for."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(12, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.special.i0e(self.first(x).sigmoid()).sin())


def penalty(net: nn.Module, inputs: Sequence[Any]) -> Any:
    """As in arXiv 1704.00028, equation 3: the norm of the input's gradient is to be 1."""
    x = inputs[0].clone().requires_grad_()
    made = net(x)
    (slope,) = grad(made.sum(), x, create_graph=True)
    loss = made.mean() + (slope.flatten(1).norm(dim=1) - 1).square().mean()
    loss.backward()
    return made


def curvature(net: nn.Module, inputs: Sequence[Any]) -> Any:
    """A product of the Hessian of the weights with their gradient, and a third derivative."""
    made = net(*inputs)
    weights = [p for p in net.parameters() if p.requires_grad]
    first = grad(made.square().mean(), weights, create_graph=True)
    second = grad(sum(g.square().sum() for g in first), weights, create_graph=True, allow_unused=True)
    third = sum(g.square().sum() for g in second if g is not None)
    (made.mean() + 1e-3 * third).backward()  # a small step: a long one goes where rounding decides
    return made


@pytest.mark.parametrize("run", [penalty, curvature])
@pytest.mark.parametrize("kind", ["critic", "rows", "two parts", "frozen"])
def test_gradients_of_gradients(kind: str, run: Any) -> None:
    torch.manual_seed(0)
    if kind == "critic":
        net, inputs = critic(), [torch.randn(4, 3, 12, 10)]
    elif kind == "two parts":
        net, inputs = Broken(), [torch.randn(5, 12)]
    else:
        net = nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.LayerNorm(9), nn.Linear(9, 4), nn.Softplus())
        net[0].requires_grad_(kind == "rows")
        inputs = [torch.randn(5, 12)]
    alike(net.train(), [inputs, inputs], run)


class Tied(nn.Module):
    """Two inputs, and a layer in two parts: what one part makes goes into the other beside it, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.first(x).tanh() * self.last(y)
        made = torch.special.i0e(h.sigmoid()).sin()
        return self.first(made * h).tanh() * h


@pytest.mark.parametrize("second", [torch.clone, torch.sin, lambda x: x], ids=["copy", "function", "same"])
def test_inputs_that_depend_on_one_another(second: Any) -> None:
    """Each has the gradient of the part alone: the way from one to the other is torch's."""
    torch.manual_seed(3)

    def run(net: nn.Module, inputs: Sequence[Any]) -> Any:
        x = inputs[0].clone().requires_grad_()
        made = net(x, second(x))
        first = grad(made.sum(), [x, *net.parameters()], create_graph=True)
        (made.mean() + sum(g.square().sum() for g in first)).backward()
        return made

    alike(Tied().train(), [[torch.randn(4, 6)]] * 2, run)


def test_a_learning_step_inside_a_step() -> None:
    """As in arXiv 1703.03400: the loss after a step of gradient descent, differentiated through the step."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 2))

    def outer(net: nn.Module, inputs: Sequence[Any]) -> Any:
        made = net(*inputs)
        names, weights = zip(*net.named_parameters(), strict=True)
        slopes = grad(made.square().mean(), weights, create_graph=True)
        fast = {n: w - 0.1 * g for n, w, g in zip(names, weights, slopes, strict=True)}
        torch.func.functional_call(net, fast, tuple(inputs)).square().mean().backward()
        return made

    alike(net, [[torch.randn(5, 6)]], outer, "torch.func.functional_call")


def test_an_input_that_changed_is_an_error() -> None:
    net = bslite.optimize(nn.Sequential(nn.Linear(4, 5), nn.Tanh()), training=True, tune=False)
    x = torch.randn(3, 4, requires_grad=True)
    made = net(x).sum()
    with torch.no_grad():
        net[0].bias.add_(1)
    grad(made, x, retain_graph=True)
    with pytest.raises(UnsupportedError, match=r"cannot differentiate.*changed in place"):
        grad(made, x, create_graph=True)


def test_the_mode_of_the_first_pass_holds() -> None:
    """A second derivative after a switch to eval mode is that of the training step."""
    torch.manual_seed(2)

    def late(net: nn.Module, inputs: Sequence[Any]) -> Any:
        made = net(*inputs)
        net.eval()
        first = grad(made.square().sum(), list(net.parameters()), create_graph=True)
        sum(g.square().sum() for g in first).backward()
        net.train()
        return made

    alike(critic().train(), [[torch.randn(4, 3, 12, 10)]], late)
