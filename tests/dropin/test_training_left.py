"""What a module may do in training that is torch's alone: bslite leaves it to torch, and says why."""

import random
from typing import Any

import pytest
import torch
from support.torch_modules import Made
from support.training import alike, step
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import bslite
from bslite.dropin.runner import runner_of

R = torch.randn


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))


def hooks(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    h.register_hook(lambda grad: grad * 3)
    return m.b(h)


def kept(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    h.retain_grad()
    return m.b(h)


def clamped(m: Any, x: Tensor) -> Tensor:
    h = m.a(x)
    with torch.no_grad():
        h.clamp_(-0.1, 0.1)
    return m.b(h)


def sliced(m: Any, x: Tensor) -> Tensor:
    h = m.a(x) * 1
    h.diagonal().zero_()
    return m.b(h)


def lucky(m: Any, x: Tensor) -> Tensor:
    return m.b(m.a(x)) * random.random()


def counted(m: Any, x: Tensor) -> Tensor:
    m.count += 1
    return m.b(m.a(x)) * m.count


LEFT = {
    "its forward checkpoints": lambda m, x: m.b(checkpoint(m.a, x, use_reentrant=False)),
    "torch.autograd.Function CheckpointFunction": lambda m, x: m.b(checkpoint(m.a, x, use_reentrant=True)),
    "puts hooks on tensors": hooks,
    "keeps gradients of values": kept,
    "in place where gradients are off": clamped,
    "in place shows elsewhere": sliced,
    "Python's or NumPy's generators": lucky,
    "changes attributes of the module": counted,
    "a transform of torch.func": lambda m, x: m.b(torch.vmap(lambda row: row * row.sum())(m.a(x))),
    "torch.export cannot trace it": lambda m, x: m.b(m.a(x)) if x.detach().sum().item() > 0 else m.a(x),
}


@pytest.mark.parametrize("reason", LEFT)
def test_what_a_trace_does_not_show_is_left_to_torch(reason: str, capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    net: Any = Made(LEFT[reason], a=nn.Linear(8, 8), b=nn.Linear(8, 8))
    net.count, net.generators = 0, random.Random(0)

    def run(module: nn.Module, inputs: Any) -> Any:
        random.seed(5)
        x = inputs[0].requires_grad_()
        return step(module, (x,))

    alike(net.train(), [(R(5, 8),) for _ in range(2)], run, reason=reason)
    assert "def forward" not in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["full_backward_hook", "full_backward_pre_hook"])
def test_backward_hooks_inside_are_torchs(kind: str) -> None:
    torch.manual_seed(0)
    net: Any = mlp().train()
    alike(net, [(R(5, 8),)])
    twice = (
        (lambda m, given, made: (given[0] * 2,))
        if kind == "full_backward_hook"
        else (lambda m, made: (made[0] * 2,))
    )
    getattr(net[1], f"register_{kind}")(twice)
    alike(net, [(R(5, 8),)], reason="backward hooks on layers inside the model (1)")


def test_hooks_on_all_modules_are_torchs() -> None:
    from torch.nn.modules.module import register_module_forward_hook

    torch.manual_seed(0)
    net = bslite.optimize(mlp().train(), training=True, tune=False, fallback="silent")
    x = R(5, 8)
    before = net(x)
    hook = register_module_forward_hook(lambda m, given, made: made * 2 if isinstance(m, nn.Linear) else None)
    try:
        made = net(x)
    finally:
        hook.remove()
    assert not torch.allclose(made, before)
    assert next(iter(runner_of(net).in_torch)) == "in training, hooks on all modules are torch's"


def test_hooks_outside_and_on_parameters_are_followed() -> None:
    torch.manual_seed(0)
    net: Any = mlp().train()
    net.register_forward_pre_hook(lambda m, given: (given[0] + 1,))
    net.register_forward_hook(lambda m, given, made: made * 2)
    net.register_full_backward_hook(lambda m, given, made: (given[0] * 2,))

    def run(module: Any, inputs: Any) -> Any:
        handles = [p.register_hook(lambda grad: grad * 3) for p in module.parameters()]
        made = step(module, (inputs[0].requires_grad_(),))
        for handle in handles:
            handle.remove()
        return made

    alike(net, [(R(5, 8),) for _ in range(2)], run)


@torch.library.custom_op("bslite_tests::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    return x * 2


doubled.register_fake(torch.empty_like)
doubled.register_autograd(lambda ctx, grad: -grad)  # which a trace through its operations would not give


def test_an_operator_with_a_gradient_of_its_own_runs_in_torch() -> None:
    """The trace holds it as it is (the experts of transformers): the layers around it are bslite's."""
    net: Any = Made(lambda m, x: m.b(doubled(m.a(x))), a=nn.Linear(8, 8), b=nn.Linear(8, 8)).train()
    alike(net, [(R(5, 8),) for _ in range(2)])
    fast: Any = bslite.optimize(net, training=True, tune=False, fallback="silent")
    step(fast, (R(5, 8),))
    (kind,) = bslite.report(fast).training
    assert len(kind.parts) == 2


def test_comparing_a_trace_leaves_no_trace() -> None:
    """A forward that asks whether it is traced is torch's from the first call on, and draws its own numbers.
    One that asks whether its input learns is not left to torch.
    """

    def tells(m: Any, x: Tensor) -> Tensor:
        return m.a(x) * (0.5 if torch.compiler.is_compiling() else random.random())

    def asks(m: Any, x: Tensor) -> Tensor:
        return m.a(x) * (2 if x.requires_grad else 3)

    for function, reason in ((tells, "computes something else"), (asks, "")):
        net: Any = Made(function, a=nn.Linear(4, 4)).train()
        fast = bslite.optimize(net, training=True, tune=False, fallback="silent")
        x = torch.randn(3, 4, requires_grad=True)
        random.seed(1)
        ours = [fast(x) for _ in range(2)]
        random.seed(1)
        for made, want in zip(ours, [net(x) for _ in range(2)], strict=True):
            torch.testing.assert_close(made, want)
        told = "; ".join(runner_of(fast).in_torch)
        assert reason in told if reason else not told
