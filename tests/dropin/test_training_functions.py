"""A ``torch.autograd.Function`` in training: torch runs it, between what bslite runs."""

import copy
from typing import Any

import pytest
import torch
from support.torch_modules import Made
from support.training import alike, step
from torch import Tensor, nn

import bslite
from bslite.dropin.runner import runner_of

R = torch.randn


class Swish(torch.autograd.Function):
    """With a number, and a backward pass that saves less."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float = 1.0) -> Tensor:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * torch.sigmoid(x) * scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * s * (1 + x * (1 - s)) * ctx.scale, None


class Reversed(torch.autograd.Function):
    """Gives back what it takes, with another gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return -grad


class Rounded(torch.autograd.Function):
    """Straight through, as quantisation has it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, levels: int) -> Tensor:
        return (x * levels).round() / levels

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        return grad, None


class Halves(torch.autograd.Function):
    """Several results, one of them without a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Any:
        ctx.save_for_backward(weight)
        low, high = x.chunk(2, -1)
        largest = x.argmax(-1)
        ctx.mark_non_differentiable(largest)
        return low * weight, high * 1, largest

    @staticmethod
    def backward(ctx: Any, low: Tensor, high: Tensor, _: Any) -> Any:  # type: ignore[override]
        (weight,) = ctx.saved_tensors
        return torch.cat([low * weight, high], -1), (low * weight).sum(0)


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.noise = torch.rand_like(x)
        return x * ctx.noise

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad * ctx.noise


class Doubled(torch.autograd.Function):
    """Writes to what it takes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad * 2


class Within(torch.autograd.Function):
    """Takes a module."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: nn.Module) -> Tensor:
        return layer(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        return grad, None


def both(m: Any, x: Tensor) -> Any:
    low, high, largest = Halves.apply(m.a(x), m.w)
    return m.b(torch.cat([low, high], -1)), largest


FUNCTIONS = {
    "a number": lambda m, x: m.b(Swish.apply(m.a(x), 2.0)),
    "a default": lambda m, x: m.b(Swish.apply(m.a(x))),
    "reversed": lambda m, x: m.b(Reversed.apply(m.a(x))),
    "reversed, then written to": lambda m, x: m.b(Reversed.apply(m.a(x)).mul(2).add_(1)),
    "straight through": lambda m, x: m.b(Rounded.apply(m.a(x), 8)),
    "several results": both,
    "one after another": lambda m, x: Reversed.apply(Swish.apply(m.b(Swish.apply(m.a(x))), 0.5)),
    "of a parameter": lambda m, x: m.b(m.a(x)) * Swish.apply(m.w).sum(),
    "noise in order": lambda m, x: nn.functional.dropout(m.b(Noisy.apply(m.a(x)) * torch.rand(8)), 0.5),
    "without gradients": lambda m, x: m.b(m.a(x)) + torch.no_grad()(Swish.apply)(m.a(x)),
}


@pytest.mark.parametrize("use", FUNCTIONS)
def test_a_function_keeps_its_backward_pass(use: str) -> None:
    torch.manual_seed(0)
    net: Any = Made(FUNCTIONS[use], a=nn.Linear(8, 8), b=nn.Linear(8, 8), w=nn.Parameter(R(4)))

    def run(module: nn.Module, inputs: Any) -> Any:
        if use == "noise in order":
            torch.manual_seed(3)
        return step(module, inputs)

    if use == "noise in order":  # float64 draws other numbers
        ours = bslite.optimize(copy.deepcopy(net).train(), fallback="error", tune=False)
        x = R(5, 8)
        made = [run(module, (x,)) for module in (net.train(), ours)]
        torch.testing.assert_close(*made)
        torch.testing.assert_close(ours.a.weight.grad, net.a.weight.grad)
    else:
        alike(net.train(), [(R(5, 8),) for _ in range(2)], run)


@pytest.mark.parametrize(("function", "others"), [(Doubled, ()), (Within, (nn.Linear(8, 8),))])
def test_what_a_function_may_do_besides_is_torchs(function: Any, others: Any) -> None:
    torch.manual_seed(0)
    net: Any = Made(lambda m, x: m.b(function.apply(m.a(x), *others)), a=nn.Linear(8, 8), b=nn.Linear(8, 8))
    ours = bslite.optimize(net.train(), fallback="silent", tune=False)
    step(ours, (R(5, 8),))
    assert any("autograd.Function" in why or "cannot trace" in why for why in runner_of(ours).in_torch)


def test_second_derivatives() -> None:
    torch.manual_seed(0)
    net: Any = Made(lambda m, x: m.b(Swish.apply(m.a(x))).tanh(), a=nn.Linear(8, 8), b=nn.Linear(8, 8))

    def run(module: Any, inputs: Any) -> Any:
        x = inputs[0].clone().requires_grad_()
        y = module(x)
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        slope.square().sum().backward()
        return y, slope

    alike(net.train(), [(R(5, 8),) for _ in range(2)], run)
