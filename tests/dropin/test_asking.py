"""A forward that asks for values, to choose what it does, runs in bslite while the answers are the same."""

import copy
from typing import Any

import pytest
from support.dropin_models import by_bslite, nn, torch, wrapped
from support.torch_modules import Made
from support.training import alike

import bslite
from bslite.dropin.reasons import ASSUMED, DEPARTS
from bslite.dropin.runner import runner_of

Tensor = torch.Tensor
R = torch.randn


def asserts(m: Any, x: Tensor) -> Tensor:
    assert not torch.isnan(x).any(), "it is no number"
    return m.b(m.a(x))


def branches(m: Any, x: Tensor) -> Tensor:
    return m.b(m.a(x)) if x.abs().max() < 10 else m.a(x)


def asks_twice(m: Any, x: Tensor) -> Tensor:
    y = m.a(x)
    if (x > 10).any() or torch.equal(x, -x):
        return y
    return m.b(y)


def counts(m: Any, x: Tensor) -> Tensor:
    y = m.a(x)
    for _ in range((x > 10).sum().item()):
        y = m.b(y)
    return y * int((x > 20).sum() + 1)


def compares(m: Any, x: Tensor) -> Tensor:
    y = m.a(x)
    return m.b(y) if not torch.allclose(x, x.round()) else y


def asks_halfway(m: Any, x: Tensor) -> Tensor:
    y = m.a(x).sigmoid()
    if y.mean() > 0.999:
        return y
    z = m.b(y)
    assert z.isfinite().all()
    return z.tanh()


def asks_a_parameter(m: Any, x: Tensor) -> Tensor:
    return m.b(m.a(x)) if m.a.bias.sum() < 1e3 else m.a(x)


ASK = (asserts, branches, asks_twice, counts, compares, asks_halfway, asks_a_parameter)


def made(forward: Any) -> Any:
    torch.manual_seed(0)
    return Made(forward, a=nn.Linear(8, 8), b=nn.Linear(8, 8))


def other(net: Any, batch: int = 4) -> Tensor:
    """Values for which a forward is answered otherwise."""
    return (R(batch, 8) * 30).round() if net.function is not asks_a_parameter else R(batch, 8)


@pytest.mark.parametrize("forward", ASK)
def test_it_runs_in_bslite_while_the_answers_are_the_same(forward: Any) -> None:
    net = made(forward).eval()
    fast = wrapped(copy.deepcopy(net))
    with torch.no_grad():
        for batch in (4, 4, 5, 1):
            x = R(batch, 8)
            torch.testing.assert_close(fast(x), net(x))
    by_bslite(fast)
    assert "values that the forward asks for are: " in str(bslite.report(fast))


@pytest.mark.parametrize("forward", ASK)
def test_other_answers_are_torchs(forward: Any) -> None:
    net = made(forward).eval()
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    with torch.no_grad():
        for i in range(12):
            x = other(net) if i % 4 == 3 else R(4, 8)
            torch.testing.assert_close(fast(x), net(x))
        if forward is asks_a_parameter:
            for n in (net, fast):
                n.a.bias.fill_(1e3)
            torch.testing.assert_close(fast(x), net(x))
    calls = runner_of(fast).in_torch
    assert set(calls) <= {ASSUMED}
    assert sum(calls.values()) == {asserts: 0, asks_halfway: 0, asks_a_parameter: 1}.get(forward, 3)


def test_an_assertion_still_fails() -> None:
    fast = bslite.optimize(made(asserts).eval(), fallback="silent", tune=False)
    x = R(4, 8)
    with torch.no_grad():
        fast(x)
        with pytest.raises(AssertionError, match="it is no number"):
            fast(x.log())
        fast(x)
    assert list(runner_of(fast).in_torch.values()) == [1]


def test_answers_that_change_from_call_to_call_are_given_up() -> None:
    net = made(branches).eval()
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    with torch.no_grad():
        for i in range(12):
            x = other(net) if i % 2 else R(4, 8)
            torch.testing.assert_close(fast(x), net(x))
    assert runner_of(fast).in_torch[DEPARTS] >= 6


def test_without_a_fallback_others_are_an_error() -> None:
    fast = wrapped(made(branches).eval())
    with torch.no_grad():
        fast(R(4, 8))
        with pytest.raises(bslite.UnsupportedError, match="asks for values"):
            fast(R(4, 8) * 30)


def noisy(m: Any, x: Tensor) -> Tensor:
    y = m.a(x + torch.randn_like(x))
    return y if (x > 10).any() else m.b(y)


def test_what_departs_has_drawn_no_numbers() -> None:
    net = made(noisy).eval()
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    with torch.no_grad():
        for i in range(8):
            x = R(4, 8) * (30 if i % 4 == 3 else 1)
            torch.manual_seed(i)
            got = fast(x)
            torch.manual_seed(i)
            torch.testing.assert_close(got, net(x))


def notes(m: Any, x: Tensor) -> Tensor:
    m.seen = m.a(x)
    return m.seen if (x > 10).any() else m.b(m.seen)


def test_what_departs_notes_what_torch_notes() -> None:
    net = made(notes).eval()
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    with torch.no_grad():
        for i in range(8):
            x = R(4, 8) * (30 if i % 4 == 3 else 1)
            torch.testing.assert_close(fast(x), net(x))
            torch.testing.assert_close(fast.seen, net.seen)
    assert set(runner_of(fast).in_torch) == {ASSUMED}


def test_a_number_that_is_not_whole_is_no_answer() -> None:
    """It is another one at every call."""
    net = made(lambda m, x: m.b(m.a(x)) / x.abs().max().item()).eval()
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    with torch.no_grad():
        for _ in range(5):
            x = R(4, 8)
            torch.testing.assert_close(fast(x), net(x))
    assert ASSUMED not in runner_of(fast).in_torch


def test_what_eager_mode_asks_and_a_trace_does_not() -> None:
    def asks_in_eager_mode(m: Any, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and (x > 10).any():
            return m.a(x)
        return m.b(m.a(x)) if x.sum() < 1e9 else x

    net = made(asks_in_eager_mode).eval()
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    with torch.no_grad():
        for i in range(8):
            x = R(4, 8) * (30 if i % 4 == 3 else 1)
            torch.testing.assert_close(fast(x), net(x))


@pytest.mark.parametrize("training", [False, True])
def test_masks_of_transformers_ask_in_eager_mode_alone(training: bool) -> None:
    """Whether a mask masks anything: without it, the result is the same."""
    scope: Any = {"__name__": "transformers.masking_utils", "torch": torch}
    exec("def idle(mask): return not torch.compiler.is_compiling() and bool(mask.all())", scope)

    def forward(m: Any, x: Tensor) -> Tensor:
        mask = x < 3
        y = m.a(x) if scope["idle"](mask) else m.a(x).masked_fill(~mask, 0.0)
        return m.b(y) if y.isfinite().all() else x

    batches = [(R(4, 8).clamp(-2, 2),), (R(4, 8) * 4,), (R(4, 8),)]
    if training:
        alike(made(forward).train(), batches)
        return
    net = made(forward).eval()
    fast = wrapped(copy.deepcopy(net))
    with torch.no_grad():
        for (x,) in batches:
            torch.testing.assert_close(fast(x), net(x))
    by_bslite(fast)


@pytest.mark.parametrize("forward", ASK)
def test_in_training(forward: Any) -> None:
    alike(made(forward).train(), [(R(4, 8),) for _ in range(3)])


def test_in_training_others_are_torchs() -> None:
    torch.manual_seed(0)
    net = made(lambda m, x: m.b(m.c(m.a(x))) if (x < 10).all() else m.c(x))
    net.c = nn.BatchNorm1d(8)
    alike(net.train(), [(R(4, 8),), (R(4, 8) + 20,), (R(4, 8),)], reason=ASSUMED)
    net = made(branches).train()
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    for i in range(10):
        x = other(net) if i % 2 else R(4, 8)
        for n in (net, fast):
            n.zero_grad()
            n(x).square().mean().backward()
        torch.testing.assert_close(fast.a.weight.grad, net.a.weight.grad)
    assert any(DEPARTS in why for why in runner_of(fast).in_torch)


def writes_to_what_it_asked(m: Any, x: Tensor) -> Tensor:
    n = (x > 10).sum()
    k = n.item()
    n.zero_()
    return m.a(x) * (2 if k > 0 else 1)


def fails_elsewhere(m: Any, x: Tensor) -> Tensor:
    """What torch refuses where the answers are others."""
    e = torch.eye(3) * (15 - x.abs().max().detach())
    if (x.abs() > 12).any():
        e = torch.eye(3)
    return m.c(m.a(x)) + torch.linalg.cholesky(e).sum()


@pytest.mark.parametrize("forward", [writes_to_what_it_asked, fails_elsewhere])
@pytest.mark.parametrize("training", [False, True])
def test_what_a_wrong_way_does_is_not_seen(forward: Any, training: bool) -> None:
    net = made(forward)
    net.c = nn.BatchNorm1d(8)
    net.train(training)
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    for i in range(8):
        x = R(4, 8) * (30 if i % 4 == 3 else 1)
        with torch.set_grad_enabled(training):
            torch.testing.assert_close(fast(x), net(x))
        torch.testing.assert_close(fast.c.running_mean, net.c.running_mean)


def test_without_a_fallback_others_are_an_error_in_training() -> None:
    fast = bslite.optimize(made(branches).train(), fallback="error", tune=False)
    fast(R(4, 8))
    with pytest.raises(bslite.UnsupportedError, match="asks for values"):
        fast(R(4, 8) * 30)


def distributes(m: Any, x: Tensor) -> Tensor:
    policy = torch.distributions.Normal(m.a(x), m.b(x).sigmoid() + 1)
    return policy.log_prob(x[..., :1])


def test_distributions_ask_whether_their_arguments_are_valid() -> None:
    net, x = Made(distributes, a=nn.Linear(8, 8), b=nn.Linear(8, 8)).eval(), R(4, 8)
    fast = wrapped(net)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), net(x))
    by_bslite(fast)
