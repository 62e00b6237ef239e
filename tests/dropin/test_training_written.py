"""Forwards that write into tensors and into views of them, trained in bslite as values."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.torch_modules import Made
from support.training import alike
from torch import Tensor, nn

from bslite.dropin.training import part

R = torch.randn


def rows() -> tuple[Tensor, ...]:
    return (R(4, 8),)


def tokens() -> tuple[Tensor, ...]:
    return (torch.randint(0, 9, (3, 7)),)


def shifted(m: Any, x: Tensor) -> Tensor:
    """What decoders read: tokens one step later."""
    before = x.new_zeros(x.shape)
    before[:, 1:] = x[:, :-1].clone()
    before[:, 0] = 2
    before.masked_fill_(before == 5, 1)
    return m.table(before)


def windows(m: Any, x: Tensor) -> Tensor:
    """A mask of regions, as shifted windows have it."""
    regions = x.new_zeros((4, 4))
    for i in range(2):
        regions[2 * i : 2 * i + 2, i] = i + 1
    regions.view(-1)[3] = 7
    return m.a(x) + regions.view(16)[:8] + regions[1].repeat(2)


def views(m: Any, x: Tensor) -> Any:
    """Views of views, written to and read by turns, of what has gradients."""
    whole = m.a(x) * 1
    left = whole[:, :4]
    low = left[1:]
    whole.add_(1)
    low.mul_(3)
    whole[:, 2] -= low[0, 1]
    turned = left.t()
    left.neg_()
    turned[1:3] += 1
    whole.unsqueeze(0).permute(2, 0, 1)[-1].mul_(x[:1, 0])
    return whole, left, low, turned * 1


def indexed(m: Any, x: Tensor) -> Any:
    whole = m.a(x).clone()
    whole[torch.tensor([0, 2])] = 1.0
    whole[:, torch.tensor([1, 3])] += x[:, :2]
    whole[x > 0] = 0
    pairs = whole.unfold(1, 2, 2) + 0
    whole.add_(1)
    whole[0].add_(whole[1])
    whole += whole.flip(0)
    places = torch.arange(4).view(4, 1)
    places += 1
    places[2] = 0
    return whole.scatter_(1, places, 2.0), pairs, m.a(whole.index_fill_(1, torch.tensor([3]), 0.25))


def powers(m: Any, x: Tensor) -> Tensor:
    """Whose twins have other names than they; degrees of a graph, made a factor."""
    y = (m.a(x).square() + 1).pow_(-0.5) * 1
    y.masked_fill_(x > 0.9, 0)
    return ((y + 1).pow_(x.abs() + 1) * 1).ldexp_(torch.ones(8))


def cast(m: Any, x: Tensor) -> Tensor:
    """Numbers written where another type and a smaller shape are wanted."""
    counts = torch.zeros(8, dtype=torch.int64)
    counts[1:] = torch.tensor(2.0)
    counts.narrow(0, 2, 3).fill_(4)
    scale = torch.empty_like(x)
    scale.copy_(counts)
    scale.zero_().add_(3)
    return m.a(x) * scale


def scaled(m: Any, x: Tensor) -> Tensor:
    """Written to before gradients are switched off, and read there."""
    whole = m.a(x) * 1
    whole[:, 0] += 1
    with torch.no_grad():
        size = whole.abs().amax(1, keepdim=True)
    whole[:, 1:].div_(size)
    return whole


WRITTEN: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]]]] = {
    "shifted": (shifted, tokens), "windows": (windows, rows), "views": (views, rows),
    "indexed": (indexed, rows), "cast": (cast, rows), "scaled": (scaled, rows), "powers": (powers, rows),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_is_read(name: str) -> None:
    forward, draw = WRITTEN[name]
    torch.manual_seed(0)
    alike(Made(forward, a=nn.Linear(8, 8), table=nn.Embedding(9, 6)).train(), [draw() for _ in range(2)])


def chunk(m: Any, x: Tensor) -> Tensor:
    numbers = torch.arange(8).repeat(4, 1) + (x > 0)
    first, _ = numbers.chunk(2, 1)
    numbers += 1
    return m.a(x) * first.repeat(1, 2)


def diagonal(m: Any, x: Tensor) -> Tensor:
    numbers = torch.arange(8).repeat(4, 1) + (x > 0)
    numbers.diagonal().fill_(4)
    return m.a(x) * numbers


def bits(m: Any, x: Tensor) -> Tensor:
    """One is written as the bits that it has."""
    scale = torch.zeros(4, 8)
    scale.view(torch.int32).fill_(0x3F800000)
    return m.a(x) * scale


def turned(m: Any, x: Tensor) -> Tensor:
    """A tensor that gets another shape, of which there is a view."""
    numbers = torch.arange(8).repeat(4, 1) + (x > 0)
    first = numbers[0]
    numbers.t_()
    numbers += 1
    return m.a(x) * first


def of_the_input(m: Any, x: Tensor) -> Tensor:
    """The caller sees this change; it ends where it began, so that all may be given the same input."""
    first = x[:, 0]
    first.neg_()
    made = m.a(x.clone())
    first.neg_()
    return made


@pytest.mark.parametrize("forward", [chunk, diagonal, bits, turned, of_the_input])
def test_other_views_are_left_to_torch(forward: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    net = Made(forward, a=nn.Linear(8, 8)).train()
    alike(net, [rows() for _ in range(2)], reason="an operation in place shows elsewhere")


def test_measuring_writes_into_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that a part divides in place, which it did once more for each time it was measured."""

    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.a(x)
        return m.b(h * h.new_empty(4, 1).bernoulli_(0.5).div_(0.5))

    measure = part.seconds
    monkeypatch.setattr(part, "seconds", lambda *given: (measure(*given), (1.0, 2.0))[1])
    torch.manual_seed(0)
    alike(Made(forward, a=nn.Linear(8, 8), b=nn.Linear(8, 3)).train(), [rows() for _ in range(2)], tune=True)


def test_sizes_that_depend_on_numbers_are_torchs() -> None:
    """Of one operation, not of the whole module."""

    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.a(x).clone()
        h[x < 0] *= 0.1
        return m.a(h)

    torch.manual_seed(0)
    alike(Made(forward, a=nn.Linear(8, 8)).train(), [rows() for _ in range(2)])


def test_what_depends_on_no_parameter_needs_no_gradient() -> None:
    """Targets made beside a forward in one part with it, for losses that refuse targets with a gradient."""

    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.a(x)
        sign, side = x.sign() * 1.0, (h > 0).to(h.dtype) * 2 - 1
        return torch.stack([nn.functional.soft_margin_loss(h, sign), nn.functional.soft_margin_loss(h, side)])

    torch.manual_seed(0)
    alike(Made(forward, a=nn.Linear(8, 8)).train(), [rows() for _ in range(2)])


def test_a_fault_is_not_met_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    from bslite.dropin.training import trainer

    calls: list[int] = []

    def planted(*given: Any) -> Any:
        calls.append(1)
        raise ValueError("planted")

    monkeypatch.setattr(trainer, "capture", planted)
    torch.manual_seed(0)
    alike(nn.Linear(8, 3).train(), [rows() for _ in range(3)], reason="fault of its own: ValueError: planted")
    assert len(calls) == 1
