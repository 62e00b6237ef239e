"""Ways to use a module in training: accumulation, checkpoints, changes between calls, copies, faults."""

import copy
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.torch_modules import Made
from support.training import alike, step
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad
from torch.utils.checkpoint import checkpoint

import bslite
from bslite.dropin.runner import runner_of
from bslite.dropin.training import part
from bslite.errors import EngineError, InputError

R = torch.randn


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 3))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))


def accumulated(net: nn.Module, inputs: Any) -> Any:
    made = [net(piece) for piece in inputs[0].split(3)]
    for y in made:
        (y.square().mean() / 3).backward()
    return made


def of_two_calls(net: nn.Module, inputs: Any) -> Any:
    made = net(inputs[0]), net(inputs[0] * 2)
    (made[0] * made[1]).mean().backward()
    return made


def retained(net: nn.Module, inputs: Any) -> Any:
    y = net(*inputs)
    y.sum().backward(retain_graph=True)
    y.square().sum().backward()
    return y


def from_outside(reentrant: bool) -> Callable[..., Any]:
    def run(net: nn.Module, inputs: Any) -> Any:
        x = inputs[0].requires_grad_(reentrant)
        y = checkpoint(net, x, use_reentrant=reentrant)
        y.square().mean().backward()
        return y

    return run


def in_both_modes(net: nn.Module, inputs: Any) -> Any:
    made = [step(net, inputs), net.eval()(*inputs)]
    with torch.no_grad():
        made += [net(*inputs), net.train()(*inputs)]
    return made


def saved_elsewhere(net: nn.Module, inputs: Any) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda x: x):
        y = net(*inputs)
    y.sum().backward()
    return y


def of_weights_alone(net: Any, inputs: Any) -> Any:
    y = net(*inputs)
    (net[0].weight.grad,) = torch.autograd.grad(y.sum(), [net[0].weight])
    return y


def scaled(net: nn.Module, inputs: Any) -> Any:
    y = net(*inputs)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(y.square().mean()).backward()
    scaler.unscale_(torch.optim.SGD(net.parameters(), 0.1))
    return y


USES = {
    "accumulated": accumulated,
    "of two calls": of_two_calls,
    "retained": retained,
    "checkpointed": from_outside(False),
    "checkpointed, reentrant": from_outside(True),
    "in both modes": in_both_modes,
    "saved elsewhere": saved_elsewhere,
    "of weights alone": of_weights_alone,
    "scaled": scaled,
}


@pytest.mark.parametrize("use", USES)
def test_uses(use: str) -> None:
    torch.manual_seed(0)
    alike(small().train(), [(R(6, 8),) for _ in range(2)], USES[use])


def test_uneven_batches_and_a_batch_of_one() -> None:
    def run(net: nn.Module, inputs: Any) -> Any:
        return [step(net, (inputs[0][:n],)) for n in (4, 3, 4, 3)]

    torch.manual_seed(0)
    alike(small().train(), [(R(4, 8),)], run)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        bslite.optimize(small().train(), training=True, tune=False, fallback="silent")(R(1, 8))


def test_sizes_that_change_with_every_call_are_traced_when_they_come_again() -> None:
    net = bslite.optimize(mlp().train(), training=True, tune=False, fallback="silent")
    for n in (2, 3, 4, 4, 5, 5, 5):
        net(R(n, 8)).sum().backward()
    assert sum(runner_of(net).in_torch.values()) == 1 + 2
    assert "there are 2 traces" in next(iter(runner_of(net).in_torch))


def buffered() -> Any:
    """A module with a number, tensors that are no parameters, and conditions."""

    def forward(m: Any, x: Tensor) -> Tensor:
        return ((m.a(x) - m.shift) * m.scale).masked_fill(m.mask, 0.0) * m.factor

    made: Any = Made(forward, a=nn.Linear(8, 4))
    made.register_buffer("shift", torch.zeros(4))
    made.register_buffer("mask", torch.tensor([True, False, True, False]))
    made.scale, made.factor = torch.arange(4.0), 1.0
    return made


def in_place(net: Any) -> None:
    net.shift.add_(1.0)
    net.mask.logical_not_()
    net.scale.add_(1.0)


def replaced(net: Any) -> None:
    net.shift, net.mask = net.shift + 1.0, ~net.mask
    net.scale, net.factor = net.scale + 1.0, 3.0


def loaded(net: Any) -> None:
    net.load_state_dict({k: v * 2 if v.dtype.is_floating_point else v for k, v in net.state_dict().items()})


def assigned(net: Any) -> None:
    net.a.weight.data = net.a.weight.data * 2
    net.a.bias = nn.Parameter(net.a.bias.detach() + 1)


@pytest.mark.parametrize("change", [in_place, replaced, loaded, assigned])
def test_changes_between_calls_are_noticed(change: Callable[[Any], None]) -> None:
    def run(net: Any, inputs: Any) -> Any:
        first = net(*inputs)
        first.sum().backward()
        change(net)
        net.zero_grad()
        return first, step(net, inputs)

    torch.manual_seed(0)
    alike(buffered().train(), [(R(5, 8),)], run)


def test_a_module_that_changes_with_every_call_is_left_to_torch() -> None:
    def run(net: Any, inputs: Any) -> Any:
        net.factor += 0.1
        return step(net, inputs)

    torch.manual_seed(0)
    alike(buffered().train(), [(R(5, 8),) for _ in range(6)], run, reason="change from call to call")


def test_precision_may_change() -> None:
    net, x = bslite.optimize(mlp().train(), training=True, tune=False, fallback="silent"), R(5, 8)
    net(x).sum().backward()
    assert net.double()(x.double()).dtype == torch.float64
    assert net.float()(x).dtype == torch.float32
    assert "takes float32 parameters" in next(iter(runner_of(net).in_torch))


def test_copies_and_averages() -> None:
    torch.manual_seed(0)
    net: Any = bslite.optimize(small().train(), training=True, tune=False, fallback="error")
    net(R(5, 8)).sum().backward()
    twin = copy.deepcopy(net)
    average = torch.optim.swa_utils.AveragedModel(net, use_buffers=True)
    for module in (twin, average):
        module.zero_grad()
        module(R(5, 8)).sum().backward()
    assert all(p.grad is not None for p in (*twin.parameters(), *average.parameters()))
    assert twin[0].weight.grad.data_ptr() != net[0].weight.grad.data_ptr()


def test_threads_may_share_a_module() -> None:
    torch.manual_seed(0)
    net, peer = mlp().train(), None
    peer = copy.deepcopy(net)
    ours = bslite.optimize(net, training=True, tune=False, fallback="error")
    xs = [R(5, 8) for _ in range(3)]
    made: list[Any] = [None] * 3

    def call(i: int) -> None:
        made[i] = ours(xs[i])

    threads = [threading.Thread(target=call, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.stack(made).sum().backward()
    sum(peer(x).sum() for x in xs).backward()  # type: ignore[union-attr]
    torch.testing.assert_close(ours[0].weight.grad, peer[0].weight.grad, rtol=1e-5, atol=1e-5)


def test_an_index_out_of_range_is_torchs_error_and_draws_nothing() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(4)
    net = nn.Sequential(nn.Embedding(9, 6), norm, nn.Dropout(0.5), nn.Linear(6, 3)).train()
    peer = copy.deepcopy(net)
    ours = bslite.optimize(net, training=True, tune=False, fallback="silent")
    good, bad = torch.randint(0, 9, (3, 4)), torch.full((3, 4), 33)
    results = []
    for module in (peer, ours):
        torch.manual_seed(1)
        module(good)
        with pytest.raises(IndexError, match="out of range"):
            module(bad)
        results.append(module(good))
    torch.testing.assert_close(*results)
    for a, b in zip(ours.buffers(), peer.buffers(), strict=True):
        torch.testing.assert_close(a, b)


def test_a_fault_of_the_engine_is_torchs_step_forwards_and_an_error_backwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    net = small().train()
    peer = copy.deepcopy(net)
    ours: Any = bslite.optimize(net, training=True, tune=False)
    x = R(5, 8)

    def fault(self: Any, given: Any) -> Any:
        raise EngineError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(part.Model, "__call__", fault)
        for module in (peer, ours):
            torch.manual_seed(1)
            if module is ours:
                with pytest.warns(UserWarning, match="runs in torch: planted"):
                    ours(x).sum().backward()
            else:
                module(x).sum().backward()
    for a, b in zip(
        (*ours.parameters(), *ours.buffers()), (*peer.parameters(), *peer.buffers()), strict=True
    ):
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(a.grad, b.grad)
    y = ours(x)
    monkeypatch.setattr(part.Model, "__call__", fault)
    with pytest.raises(EngineError, match="backward pass, after its forward pass: planted"):
        y.sum().backward()


def test_batches_of_gradients_are_torchs() -> None:
    """torch computes the forward pass again, once, for all of them."""
    net = mlp().train()
    fast, x, seeds = bslite.optimize(copy.deepcopy(net), training=True, tune=False), R(5, 8), R(2, 5, 3)

    def batched(module: nn.Module) -> tuple[Tensor, ...]:
        given = x.clone().requires_grad_()
        wrt = [given, *module.parameters()]
        found = torch.autograd.grad(module(given), wrt, seeds, is_grads_batched=True)
        assert not any(t.requires_grad for t in found)
        return (*found, torch.autograd.functional.jacobian(module, x, vectorize=True))

    torch.testing.assert_close(batched(fast), batched(net))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # of torch's own use
def test_functional_calls_and_transforms_are_torchs() -> None:
    torch.manual_seed(0)
    net = bslite.optimize(mlp().train(), training=True, tune=False, fallback="silent")
    x = R(5, 8)
    net(x).sum().backward()
    twice = {k: p.detach() * 2 for k, p in net.named_parameters()}
    grad(lambda params: functional_call(net, params, (x,)).sum())(twice)
    functional_call(net, {k: p.requires_grad_() for k, p in twice.items()}, (x,)).sum().backward()
    with forward_ad.dual_level():
        net(forward_ad.make_dual(x, torch.ones_like(x)))
    told = runner_of(net).in_torch
    assert [text.partition(" ")[0] for text in told] == ["another", "in"]
    assert "as torch.func.functional_call has it" in list(told)[1]
    count = sum(told.values())
    net(x).sum().backward()  # the trace of its own parameters is still there
    assert sum(told.values()) == count
    assert all(math.isfinite(float(p.grad.sum())) for p in net.parameters())


def test_a_wrong_input_is_torchs_error() -> None:
    net = bslite.optimize(mlp().train(), training=True, tune=False, fallback="silent")
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        net(R(5, 7))
    with pytest.raises(InputError):
        bslite.report(mlp())


def test_what_depends_on_no_gradient_has_none() -> None:
    class Found(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("bank", torch.randn(6, 4))

        def forward(self, x: Tensor) -> Tensor:
            return torch.index_select(self.bank, 0, torch.argmax(x @ self.bank.t(), 1))

    net = Found().train()
    fast = bslite.optimize(net, training=True, tune=False, fallback="silent")
    x = torch.randn(3, 4, requires_grad=True)
    made = fast(x)
    assert not made.requires_grad
    torch.testing.assert_close(made, net(x))
