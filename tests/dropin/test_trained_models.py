"""Modules of many kinds in training: what bslite runs of them, on torch's tape, gives torch's numbers."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.torch_modules import Made
from support.training import alike, step
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

import bslite

R = torch.randn


def images(n: int = 3) -> tuple[Tensor, ...]:
    return (R(n, 3, 9, 8),)


def rows(n: int = 5) -> tuple[Tensor, ...]:
    return (R(n, 8),)


def tokens(n: int = 3) -> tuple[Tensor, ...]:
    return (torch.randint(0, 9, (n, 5)),)


def sentences(n: int = 3) -> tuple[Tensor, ...]:
    return (R(n, 6, 12),)


def heads(n: int = 2) -> tuple[Tensor, ...]:
    return (R(n, 4, 6, 12),)


def steps(n: int = 3) -> tuple[Tensor, ...]:
    return (R(7, n, 5),)


def padded(n: int = 3) -> tuple[Tensor, ...]:
    return (R(7, n, 5), torch.tensor([7, 3, 5][:n]))


def convs(layer: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 6, 3), layer, nn.Tanh())


def shared_table() -> nn.Module:
    table, last = nn.Embedding(9, 6), nn.Linear(6, 9, bias=False)
    last.weight = table.weight
    return nn.Sequential(table, nn.Linear(6, 6), nn.ReLU(), last)


def unet() -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        a = m.a(x)
        b = m.b(F.max_pool2d(a, 2))
        c = F.interpolate(m.c(b), scale_factor=2.0, mode="bilinear")
        return m.last(torch.cat([m.up(b), c, a], 1))

    def block(i: int, o: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(True))

    return Made(
        forward, a=block(3, 4), b=block(4, 8), c=nn.Conv2d(8, 4, 1), up=nn.ConvTranspose2d(8, 4, 2, 2),
        last=nn.Conv2d(12, 2, 1),
    )  # fmt: skip


def recurrent(kind: str, **options: Any) -> nn.Module:
    width = 6 * (1 + options.get("bidirectional", False))
    return Made(
        lambda m, x: m.last(m.cells(x)[0]), cells=getattr(nn, kind)(5, 6, **options), last=nn.Linear(width, 3)
    )


def tagger(dropout: float) -> nn.Module:
    def forward(m: Any, x: Tensor, lengths: Tensor) -> Tensor:
        y, _ = m.cells(nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))
        return m.last(nn.utils.rnn.pad_packed_sequence(y)[0])

    return Made(forward, cells=nn.LSTM(5, 6, 2, dropout=dropout, bidirectional=True), last=nn.Linear(12, 3))


def siamese() -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        return (m.net(x[:, :4]) - m.net(x[:, 4:])).abs()

    return Made(forward, net=nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh()))


def straight_through() -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        h = m.a(x)
        return m.b(h + (h.round() - h).detach())

    return Made(forward, a=nn.Linear(8, 8), b=nn.Linear(8, 3))


def frozen_inside() -> nn.Module:
    """Layers without gradients, and some with, within `torch.no_grad`, and their batch norm's statistics."""

    def forward(m: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            h = m.norm(m.a(x))
            with torch.enable_grad():
                k = m.b(x).tanh()
        return m.c(h + k) + m.a(x)

    return Made(forward, a=nn.Linear(8, 8), norm=nn.BatchNorm1d(8), b=nn.Linear(8, 8), c=nn.Linear(8, 8))


def written_inside() -> nn.Module:
    """A tensor made and written where gradients are off, seen by a view, as rotary positions of Qwen3-VL."""

    def forward(m: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            turned = (m.a(x) * 2).clone()
            seen = turned[:, :2]
            turned[:, 1:4] = x[:, 2:5]
            turned.mul_(3).sub_(1)
        return m.b(x) * turned + seen.sum()

    return Made(forward, a=nn.Linear(8, 8), b=nn.Linear(8, 8))


def order_of_noise() -> nn.Module:
    """Numbers drawn before, between and behind parts of bslite's, by bslite's operation and by torch's."""

    def forward(m: Any, x: Tensor) -> Tensor:
        torch.rand(3)
        h = F.dropout(m.a(x), 0.3)
        h = h + torch.rand_like(h)
        h = m.b(F.alpha_dropout(h, 0.2, True))
        return F.dropout(m.a(h), 0.4) + torch.randn(8)

    return Made(forward, a=nn.Linear(8, 8), b=nn.Linear(8, 8))


def unused() -> nn.Module:
    """Layers that results need, that none needs, and that one needs which no loss reads."""
    return Made(
        lambda m, x: {"y": m.a(x), "z": m.b(x).tanh()},
        a=nn.Linear(8, 3),
        b=nn.Linear(8, 3),
        c=nn.Linear(8, 3),
    )


def table(**options: Any) -> nn.Module:
    return nn.Sequential(nn.Embedding(9, 6, **options), nn.Linear(6, 3))


def encoder(**options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(12, 2, 20, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def attention(mask: Tensor | None = None, groups: int = 1, **options: Any) -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        few = x[:, ::groups] if groups > 1 else x
        return F.scaled_dot_product_attention(m.q(x), m.k(few), few, m.mask, 0.3, **options)

    return Made(forward, q=nn.Linear(12, 12), k=nn.Linear(12, 12), mask=mask)


SEEN = torch.tensor([[True] * 4 + [False] * 2] * 5 + [[False] * 6])  # the last query sees nothing
LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[..., tuple[Tensor, ...]]]] = {
    "batch norm, mean of all batches": (lambda: convs(nn.BatchNorm2d(6, momentum=None)), images),
    "batch norm, no statistics kept": (lambda: convs(nn.BatchNorm2d(6, track_running_stats=False)), images),
    "batch norm, not affine": (lambda: convs(nn.BatchNorm2d(6, affine=False)), images),
    "instance norm": (lambda: convs(nn.InstanceNorm2d(6, affine=True)), images),
    "instance norm, statistics kept": (lambda: convs(nn.InstanceNorm2d(6, track_running_stats=True)), images),
    "group norm": (lambda: convs(nn.GroupNorm(3, 6)), images),
    "dropout of channels": (lambda: convs(nn.Dropout2d(0.4)), images),
    "dropout of all": (lambda: convs(nn.Dropout(1.0)), images),
    "dropout of none": (lambda: convs(nn.Dropout(0.0)), images),
    "dropout in place": (lambda: convs(nn.Dropout(0.5, inplace=True)), images),
    "filled like another": (lambda: Made(
        lambda m, x: m.b(x) * (t := torch.special.i0(m.a(x))).new_full((5, 6), 0.5).cumsum(0) + t,
        a=nn.Linear(8, 6), b=nn.Linear(8, 6)), rows),
    "dropout of what is repeated": (lambda: Made(
        lambda m, x: m.a(x) + F.dropout(m.a(x)[:1].expand(5, -1), 0.3), a=nn.Linear(8, 6)), rows),
    "alpha dropout": (lambda: convs(nn.AlphaDropout(0.3)), images),
    "response norm": (lambda: convs(nn.LocalResponseNorm(3)), images),
    "no gradient in the middle": (lambda: convs(nn.AdaptiveMaxPool2d((3, 2))), images),
    "U-Net": (unet, lambda: (R(2, 3, 8, 12),)),
    "padding index": (lambda: table(padding_idx=2), tokens),
    "by frequency": (lambda: table(scale_grad_by_freq=True), tokens),
    "shared table": (shared_table, tokens),
    "LSTM": (lambda: recurrent("LSTM", num_layers=2, bidirectional=True), steps),
    "LSTM with dropout": (lambda: recurrent("LSTM", num_layers=3, dropout=0.4, bidirectional=True), steps),
    "GRU with dropout": (lambda: recurrent("GRU", num_layers=2, dropout=0.4, batch_first=True), steps),
    "RNN with dropout": (lambda: recurrent("RNN", num_layers=2, dropout=0.4, bias=False), steps),
    "packed LSTM": (lambda: tagger(0.0), padded),
    "encoder": (lambda: encoder(batch_first=True), sentences),
    "encoder, norm first": (lambda: encoder(norm_first=True, activation="gelu"), sentences),
    "causal attention with dropout": (lambda: attention(is_causal=True), sentences),
    "masked attention with dropout": (lambda: attention(SEEN, scale=0.7), sentences),
    "grouped attention with dropout": (lambda: attention(enable_gqa=True, groups=2), heads),
    "biased attention with dropout": (lambda: attention(nn.Parameter(R(6, 6))), sentences),
    "siamese": (siamese, rows),
    "straight through": (straight_through, rows),
    "no_grad and enable_grad": (frozen_inside, rows),
    "written where gradients are off": (written_inside, rows),
    "order of noise": (order_of_noise, rows),
    "unused": (unused, rows),
    "weight norm": (lambda: nn.Sequential(weight_norm(nn.Linear(8, 6)), nn.ReLU()), rows),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_steps_are_as_near_to_float64(name: str) -> None:
    make, draw = LAYERS[name]
    torch.manual_seed(0)
    alike(make().train(), [draw() for _ in range(2)])


class Autocast(nn.Module):
    """Regions of autocast, with one of no gradients within."""

    def __init__(self, enabled: bool) -> None:
        super().__init__()
        self.first, self.second, self.enabled = nn.Linear(8, 8), nn.Linear(8, 8), enabled

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        y = self.first(x)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.enabled):
            z = self.second(y)
            with torch.no_grad():
                still = torch.sin(y)
            with torch.autocast("cpu", enabled=False):
                y = y.float() * still
        return y, z.float(), still


def test_autocast_that_is_off_is_no_region() -> None:
    torch.manual_seed(0)
    alike(Autocast(False).train(), [rows(), rows()])
    fast = bslite.optimize(Autocast(False).eval(), tune=False, fallback="error")
    with torch.no_grad():
        for made, want in zip(fast(*(x := rows())), Autocast.forward(fast, *x), strict=True):
            torch.testing.assert_close(made, want)


def test_autocast_that_is_off_is_left_in_any_order() -> None:
    class Crossed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            first, second = (torch.autocast("cpu", enabled=False) for _ in range(2))
            first.__enter__()
            second.__enter__()
            y = self.layer(x)
            first.__exit__(None, None, None)
            second.__exit__(None, None, None)
            return y

    alike(Crossed().train(), [rows(), rows()])


def test_autocast_that_is_on_is_torchs() -> None:
    ours, theirs, (x,) = Autocast(True), Autocast(True), rows()
    theirs.load_state_dict(ours.state_dict())
    fast = bslite.optimize(ours, tune=False, fallback="silent")
    for net in (fast, theirs):
        step(net, (x,))
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert p.grad is not None
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-5)
    assert any("switches autocast on" in why for why in bslite.report(fast).calls_in_torch)


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_a_weight_that_a_hook_makes() -> None:
    """Of what is learnt, forwards in torch in between."""
    old = torch.nn.utils.weight_norm
    ours, theirs = (nn.Sequential(old(nn.Linear(8, 6)), nn.Tanh(), old(nn.Linear(6, 3))) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    fast = bslite.optimize(ours, training=True, tune=False, fallback="error")
    for _ in range(5):
        x = R(5, 8)
        for net, call in ((ours, fast), (theirs, theirs)):
            net.zero_grad()
            (call(x).square().sum() + net[0].weight.square().sum()).backward()  # with a penalty
            torch.optim.SGD(net.parameters(), lr=0.1).step()
            nn.Sequential.forward(net, x)
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(p, q)


@pytest.mark.parametrize("used", ["y", "z"])
def test_what_a_loss_does_not_need_has_no_gradient(used: str) -> None:
    """A gradient of zeros would be noticed by the momentum and the decay of an optimizer."""

    def run(net: nn.Module, inputs: Any) -> Any:
        made = net(*inputs)
        made[used].sum().backward()
        return made

    torch.manual_seed(0)
    x = R(5, 8).requires_grad_()
    alike(unused().train(), [(x,)], run)


def test_a_frozen_target_network() -> None:
    """A network that learns from another, which learns nothing, but whose batch norm goes by the batch."""

    def forward(m: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            target = m.target(x)
        return F.mse_loss(m.online(x), target)

    torch.manual_seed(0)
    online = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    net = Made(forward, online=online, target=copy.deepcopy(online).requires_grad_(False))
    alike(net.train(), [rows() for _ in range(3)])


def test_a_generator_and_a_discriminator() -> None:
    """Two modules whose backward passes meet, and one whose gradient is stopped between."""
    from bslite import optimize

    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6))
    judge = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))

    class Pair(nn.Module):
        def __init__(self, wrap: bool) -> None:
            super().__init__()
            both = (copy.deepcopy(generator), copy.deepcopy(judge))
            self.g, self.d = (
                optimize(m, training=True, tune=False, fallback="error") if wrap else m for m in both
            )

    noise, real = R(5, 4), R(5, 6)
    grads = []
    for wrap in (False, True):
        pair = Pair(wrap).train()
        fake = pair.g(noise)
        (F.softplus(-pair.d(real)).mean() + F.softplus(pair.d(fake.detach())).mean()).backward()
        F.softplus(-pair.d(fake)).mean().backward()
        grads.append([p.grad for p in pair.parameters()])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_packed_sequences_with_dropout_are_torchs() -> None:
    torch.manual_seed(0)
    alike(tagger(0.4).train(), [padded()], reason="dropout between layers over packed sequences")


def test_kwargs_nested_inputs_and_gradients_of_inputs() -> None:
    torch.manual_seed(0)
    net = Made(lambda m, x, y: {"a": m.a(x) * y[0], "b": (x, y[0].relu())}, a=nn.Linear(8, 8))
    x, y = R(5, 8).requires_grad_(), R(5, 8).requires_grad_()
    alike(net.train(), [(x, y)], lambda m, inputs: step(m, (inputs[0], [inputs[1]])))
