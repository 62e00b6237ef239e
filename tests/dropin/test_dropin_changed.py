"""Forwards that write to their arguments: states of recurrences, caches of fixed length, ReLU in place."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from support.dropin_models import nn, torch
from support.torch_modules import Made

import bslite
from bslite.dropin.changed import OVERLAPS
from bslite.dropin.runner import runner_of

Tensor = torch.Tensor
R = torch.randn


def recurrent(m: Any, x: Tensor, h: Tensor) -> Tensor:
    h.mul_(0.5).add_(m.a(x))
    return m.b(h)


def overwritten(m: Any, x: Tensor, h: Tensor) -> Tensor:
    h.copy_(torch.tanh(m.a(x) + m.b(h)))
    return m.b(h) + x


def a_row(m: Any, x: Tensor, h: Tensor) -> Tensor:
    h[0] = m.a(x)[1]
    h[:, 2:4] += 1
    return m.b(h)


def shifted(m: Any, x: Tensor, h: Tensor) -> Tensor:
    h.copy_(torch.roll(h, -1, 1))
    h[:, -1] = m.a(x).sum(1)
    return m.b(h)


def swapped(m: Any, x: Tensor, h: Tensor) -> Tensor:
    held = h.clone()
    h.copy_(x)
    x.copy_(held)
    return m.a(h) - m.b(x)


def given(m: Any, x: Tensor, h: Tensor) -> Tensor:
    h.copy_(x)
    return m.a(h)


def asks(m: Any, x: Tensor, h: Tensor) -> Tensor:
    h.add_(m.a(x))
    return m.b(h) if h.abs().max() < 1e3 else m.a(h)


def of_a_transform(m: Any, x: Tensor, h: Tensor) -> Tensor:
    h.add_(torch.vmap(lambda row: row * row.sum())(m.a(x)))
    return m.b(h)


def in_place(m: Any, x: Tensor, h: Tensor) -> Tensor:
    return m.a(torch.relu_(x)) + m.b(h)


def returned(m: Any, x: Tensor, h: Tensor) -> Any:
    h.add_(m.a(x))
    return m.b(h), h


def part_returned(m: Any, x: Tensor, h: Tensor) -> Any:
    row = h[0]
    h.add_(m.a(x))
    return m.b(h), row


OURS: tuple[Callable[..., Any], ...] = (
    recurrent, overwritten, a_row, shifted, swapped, given, asks, of_a_transform, in_place,
)  # fmt: skip


def made(forward: Any) -> Any:
    torch.manual_seed(0)
    return Made(forward, a=nn.Linear(8, 8), b=nn.Linear(8, 8)).eval()


def step(fast: Any, net: Any, *inputs: Tensor) -> None:
    """A call of both: results, and what has become of the inputs."""
    others = copy.deepcopy(inputs)
    with torch.no_grad():
        torch.testing.assert_close(fast(*inputs), net(*others))
    for x, y in zip(inputs, others, strict=True):
        torch.testing.assert_close(x, y)


def turned(batch: int) -> Tensor:
    return R(8, batch).t()


@pytest.mark.parametrize("tune", [False, True])
@pytest.mark.parametrize("forward", OURS)
def test_arguments_have_the_values_that_the_forward_gives_them(forward: Any, tune: bool) -> None:
    net = made(forward)
    fast = bslite.optimize(copy.deepcopy(net), tune=tune, fallback="silent")
    h = R(3, 8)
    for _ in range(3):
        step(fast, net, R(3, 8), h)
    for batch in (2, 5, 1, 4) if forward is not a_row else (2, 5, 4):
        step(fast, net, R(batch, 8), turned(batch))
    assert tune or runner_of(fast).in_torch == {}


@pytest.mark.parametrize("forward", [returned, part_returned])
def test_a_result_that_lies_in_an_argument_is_torchs(forward: Any) -> None:
    net = made(forward)
    fast = bslite.optimize(copy.deepcopy(net), tune=False, fallback="silent")
    h = R(3, 8)
    with torch.no_grad():
        made_of = fast(R(3, 8), h)
    assert made_of[1].untyped_storage().data_ptr() == h.untyped_storage().data_ptr()
    assert any("changes its input" in why for why in runner_of(fast).in_torch)


def test_arguments_that_overlap_are_torchs() -> None:
    net = made(recurrent)
    fast = bslite.optimize(copy.deepcopy(net), tune=False, fallback="silent")
    step(fast, net, R(3, 8), R(3, 8))
    apart = R(6, 8)
    step(fast, net, apart[:3], apart[3:])
    assert runner_of(fast).in_torch == {}
    one = R(4, 8)
    other = one.clone()
    with torch.no_grad():
        torch.testing.assert_close(fast(one[:3], one[1:]), net(other[:3], other[1:]))
    torch.testing.assert_close(one, other)
    assert OVERLAPS in runner_of(fast).in_torch


def test_a_call_that_torch_runs_after_all_has_changed_nothing_before() -> None:
    net = made(asks)
    fast = bslite.optimize(copy.deepcopy(net), tune=False, fallback="silent")
    for scale in (1, 1e6, 1):
        step(fast, net, R(3, 8) * scale, R(3, 8))
    assert sum(runner_of(fast).in_torch.values()) == 1


class State:
    def __init__(self) -> None:
        self.h, self.steps = torch.zeros(2, 8), 0


def test_an_object_keeps_its_tensors() -> None:
    def forward(m: Any, x: Tensor, state: State) -> Tensor:
        state.h.copy_(torch.tanh(m.a(x) + m.b(state.h)))
        return m.b(state.h)

    net, ours, theirs = made(forward), State(), State()
    fast, held = bslite.optimize(copy.deepcopy(net), tune=False, fallback="silent"), ours.h
    with torch.no_grad():
        for _ in range(4):
            x = R(2, 8)
            torch.testing.assert_close(fast(x, ours), net(x, theirs))
            torch.testing.assert_close(ours.h, theirs.h)
    assert ours.h is held
    assert runner_of(fast).in_torch == {}
