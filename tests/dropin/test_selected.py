"""Elements that a condition selects, put where the same condition holds, are a choice."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from support.dropin_models import agree, by_bslite, nn, torch, wrapped
from support.torch_modules import Made
from support.training import alike

import bslite
from bslite.dropin.runner import runner_of

Tensor = torch.Tensor
R = torch.randn


def copied(m: Any, x: Tensor) -> Tensor:
    y = m.a(x)
    chosen = y > 0
    made = torch.zeros_like(y)
    made[chosen] = y[chosen]
    return made


def twice_asked(m: Any, x: Tensor) -> Tensor:
    y, made = m.a(x), x * 2
    made[y > 0.1] = 4.0 - y[y > 0.1] + x[y > 0.1]
    made[y < -0.1] = y[y < -0.1] - 1
    return made


def by_function(m: Any, x: Tensor) -> Tensor:
    y, made = m.a(x), x * 2
    chosen = y > 0
    made[chosen] = torch.log(y[chosen]) * 2 + x[chosen].exp()
    return made


def rows(m: Any, x: Tensor) -> Tensor:
    made, chosen = m.a(x), x.sum(-1) > 0
    made[chosen] = x[chosen] + m.b
    return made


def columns(m: Any, x: Tensor) -> Tensor:
    made, chosen = m.a(x), m.b > 0
    made[:, chosen] = x[:, chosen] - 1.0
    return made


def of_itself(m: Any, x: Tensor) -> Tensor:
    y = m.a(x) * 1
    y[y < 0] = -y[y < 0]
    return y + x


def into_a_view(m: Any, x: Tensor) -> Tensor:
    y = m.a(x) * 1
    half, chosen = y[:, ::2], x[:, ::2] > 0
    half[chosen] = x[:, 1::2][chosen]
    return y


def out_of_place(m: Any, x: Tensor) -> Tensor:
    y, chosen = m.a(x), x > 0
    return torch.index_put(y, (chosen,), x[chosen])


CHOICES = (copied, twice_asked, rows, columns, of_itself, into_a_view, out_of_place)


def asked_before_a_change(m: Any, x: Tensor) -> Tensor:
    y, made = m.a(x) * 1, x * 2
    taken = y[y > 0]
    made[y > 0] = taken
    chosen = y[y > 0.5]
    y.add_(0)
    made[y > 0.5] = chosen
    return made


def changed_between(m: Any, x: Tensor) -> Tensor:
    y, made = m.a(x) * 1, x * 2
    chosen = y > 0
    taken = y[chosen]
    y.mul_(3)
    made[chosen] = taken
    return made + y


def other_condition(m: Any, x: Tensor) -> Tensor:
    y, made = m.a(x), x * 2
    made[x > x.median()] = y[x.flip(1) > x.median()]
    return made


def sorted_between(m: Any, x: Tensor) -> Tensor:
    y, made = m.a(x), x * 2
    made[y > 0] = y[y > 0].sort().values
    return made


def counted(m: Any, x: Tensor) -> Tensor:
    y, made = m.a(x), x * 2
    taken = y[y > 0]
    made[y > 0] = taken
    return made / taken.shape[0]


def changed_by_a_view(m: Any, x: Tensor) -> Tensor:
    y, made = m.a(x), x * 2
    taken = y[y > 0]
    taken[:3].clamp_(max=0.01)
    made[y > 0] = taken
    return made


def changed_flat(m: Any, x: Tensor) -> Tensor:
    y, made, rows = m.a(x), x * 2, x.sum(1) > 0
    taken = y[rows]
    flat = taken.view(-1)
    flat[flat > 0] = 0.5
    made[rows] = taken
    return made


def condition_of_before(m: Any, x: Tensor) -> Tensor:
    y, made = m.a(x) * 1, x * 2
    signs = y > 0
    seen = signs[:]
    taken = x[signs[:]]
    signs.logical_not_().logical_not_()
    made[seen] = taken
    return made + y


def written_by_another_name(m: Any, x: Tensor) -> Tensor:
    y, made = m.a(x).detach() * 1, x * 2
    chosen = y > 0
    taken = y[chosen]
    torch.mul(y, 3, out=y)
    made[chosen] = taken
    return made + m.a(x)


def whole_numbers(m: Any, x: Tensor) -> Tensor:
    a, b = (x * 4).long(), (m.b * 2).long()
    made, chosen = torch.zeros_like(a), (b != 0).expand(a.shape)
    made[chosen] = a[chosen] % b.expand(a.shape)[chosen]
    return m.a(x) + made


OTHERS = (
    asked_before_a_change, changed_between, other_condition, sorted_between, counted, changed_by_a_view,
    changed_flat, condition_of_before, written_by_another_name, whole_numbers,
)  # fmt: skip


def made(forward: Callable[..., Any]) -> Any:
    torch.manual_seed(0)
    return Made(forward, a=nn.Linear(8, 8), b=nn.Parameter(R(8)))


@pytest.mark.parametrize("forward", [*CHOICES, by_function])
def test_a_choice_is_bslites(forward: Any) -> None:
    net = made(forward).eval()
    fast = wrapped(copy.deepcopy(net))
    for batch in (4, 5, 1):
        agree(fast, net, R(batch, 8))
    by_bslite(fast)


@pytest.mark.parametrize("forward", OTHERS)
def test_what_is_no_choice_is_right(forward: Any) -> None:
    net = made(forward).eval()
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    for batch in (4, 5, 1):
        agree(fast, net, R(batch, 8))
        agree(fast, net, R(batch, 8) * 30)


@pytest.mark.parametrize("forward", [*CHOICES, by_function, *OTHERS])
def test_gradients_of_choices(forward: Any) -> None:
    reason = "" if forward in CHOICES else "data-dependent"
    net = made(forward).train()
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False, training=True)
    x = R(4, 8)
    made_, want = fast(x), net(x)
    torch.testing.assert_close(made_, want)
    made_.square().sum().backward()
    want.square().sum().backward()
    for p, q in zip(fast.parameters(), net.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None)
        if q.grad is not None:
            torch.testing.assert_close(p.grad, q.grad)
    if not reason:
        assert not runner_of(fast).in_torch
        alike(made(forward).train(), [(R(4, 8),) for _ in range(2)])


def test_a_selection_may_be_read_elsewhere_too() -> None:
    """In training: conditions are saved, and are results."""

    def forward(m: Any, x: Tensor) -> Any:
        y, made = m.a(x), x * 1
        chosen = y > 0
        taken = y[chosen]
        made[chosen] = taken
        return made * 1, taken, chosen

    net = made(forward).train()
    fast = bslite.optimize(copy.deepcopy(net), fallback="silent", tune=False)
    for _ in range(2):
        x = R(4, 8)
        got, want = fast(x), net(x)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b)
        for n, y in ((fast, got), (net, want)):
            n.zero_grad()
            (y[0].sum() + y[1].square().sum()).backward()
        torch.testing.assert_close(fast.a.weight.grad, net.a.weight.grad)
