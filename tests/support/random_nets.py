"""Networks that nobody drew: layers on signals, images, volumes and rows, in any order, with sums and
concatenations across. The same seed gives the same network.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Function = Callable[[Tensor], Tensor]
LARGEST = 100_000  # elements of a value


class Net(nn.Module):
    """``steps``: a layer or function, and the places of the values that it reads; the input's is 0."""

    def __init__(self, steps: list[tuple[Any, tuple[int, ...]]]) -> None:
        super().__init__()
        self.steps = steps
        self.layers = nn.ModuleList(f for f, _ in steps if isinstance(f, nn.Module))

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for function, places in self.steps:
            values.append(function(*(values[i] for i in places)))
        return values[-1]


def random_net(seed: int) -> tuple[Net, Tensor]:
    """A network in eval mode, and an input for it."""
    r = random.Random(seed)
    torch.manual_seed(seed)
    x = torch.randn(r.choice((1, 1, 2, 3)), *r.choice((_signal, _image, _image, _volume, _rows))(r))
    values, steps = [x], []
    for _ in range(r.randrange(30)):
        if len(steps) == 8:
            break
        step = _joined(r, values) if r.random() < 0.2 else _alone(r, values)
        if step is None:
            continue
        function, places = step
        with torch.no_grad():
            try:
                made = function(*(values[i] for i in places))
            except (RuntimeError, ValueError):  # too small for the layer
                continue
        if 0 < made.numel() <= LARGEST and bool(torch.isfinite(made).all()) and made.abs().max() < 1e4:
            values.append(made)
            steps.append(step)
    return Net(steps or [(torch.relu, (0,))]).eval(), x


def _signal(r: random.Random) -> tuple[int, ...]:
    return r.choice((1, 3, 8, 24)), r.choice((37, 64, 500, 2049))


def _image(r: random.Random) -> tuple[int, ...]:
    return r.choice((3, 8, 24)), r.choice((7, 16, 33)), r.choice((8, 15, 40))


def _volume(r: random.Random) -> tuple[int, ...]:
    return r.choice((1, 3, 8)), r.choice((4, 7)), r.choice((6, 9)), r.choice((8, 16))


def _rows(r: random.Random) -> tuple[int, ...]:
    return r.choice((3, 10, 40)), r.choice((4, 8, 24))


def _joined(r: random.Random, values: list[Tensor]) -> tuple[Any, tuple[int, ...]] | None:
    """A sum or a concatenation of two values."""
    i, j = r.randrange(len(values)), r.randrange(len(values))
    a, b = values[i], values[j]
    if a.shape == b.shape:
        return r.choice((torch.add, torch.mul, torch.maximum)), (i, j)
    if a.dim() == b.dim() and a.shape[2:] == b.shape[2:]:
        return lambda a, b: torch.cat([a, b], 1), (i, j)
    return None


def _alone(r: random.Random, values: list[Tensor]) -> tuple[Any, tuple[int, ...]] | None:
    """A layer or function of one value, mostly of the last one."""
    i = r.choice((len(values) - 1, len(values) - 1, r.randrange(len(values))))
    x = values[i]
    if x.dim() < 3:
        return None
    found = [*_functions(r, x), *_rows_layers(r, x)]
    if x.dim() <= 5:
        found += [*_windows(r, x)] * 2
    return r.choice(found), (i,)


def _windows(r: random.Random, x: Tensor) -> Iterator[Any]:
    """Layers of signals, images and volumes."""
    axes, c = x.dim() - 2, x.shape[1]
    outputs, k, dilation = r.choice((3, 4, 16, 17, 32)), r.choice((1, 3, 5)), r.choice((1, 1, 2))

    def layer(name: str, *args: Any, **attrs: Any) -> Any:
        return getattr(nn, f"{name}{axes}d")(*args, **attrs)

    def after(conv: Any, function: Function) -> Any:
        return nn.Sequential(conv, _module(function))

    wide = {"stride": r.choice((1, 1, 2)), "padding": dilation * (k // 2), "dilation": dilation}
    yield layer("Conv", c, outputs, k, **wide, bias=r.random() < 0.7)
    yield after(layer("Conv", c, outputs, k, padding=r.choice((0, k // 2))), torch.relu)
    yield layer("Conv", c, c * r.choice((1, 2)), k, **wide, groups=c)
    yield layer("ConvTranspose", c, outputs, r.choice((2, 3, 4)), 2, 1)
    kept = 2 * (k // 2) * dilation or 1
    chomped = layer("Conv", c, outputs, k, padding=kept, dilation=dilation)
    yield after(chomped, lambda y: y.narrow(2, 0, y.shape[2] - kept))
    yield layer("MaxPool", 3, r.choice((1, 2)), 1)
    yield layer("AvgPool", 2, r.choice((1, 2)), 1)
    yield _norm(layer("BatchNorm", c))
    yield nn.GroupNorm(r.choice([g for g in (1, 2, 4, c) if c % g == 0]), c)
    scale, mode = (
        r.choice((0.5, 1.5, 2)),
        r.choice(("nearest", ("linear", "bilinear", "trilinear")[axes - 1])),
    )
    yield lambda y: F.interpolate(y, scale_factor=scale, mode=mode)
    pads, how = (
        tuple(r.choice((0, 1, 2)) for _ in range(2 * axes)),
        r.choice(("reflect", "replicate", "constant")),
    )
    yield lambda y: F.pad(y, pads, mode=how)
    inner = tuple(range(2, axes + 2))
    yield lambda y: y * torch.sigmoid(y.mean(inner, keepdim=True))
    yield lambda y: y / (1 + y.amax(inner, keepdim=True).abs())
    yield lambda y: y.flatten(2).softmax(-1).reshape(y.shape)


def _norm(norm: Any) -> Any:
    """With statistics of their own for each channel."""
    norm.running_mean.normal_(0, 0.3)
    norm.running_var.uniform_(0.5, 2)
    return norm


def _rows_layers(r: random.Random, x: Tensor) -> Iterator[Any]:
    """Layers along the last axis, or along the channels moved there."""
    last, c, outputs = x.shape[-1], x.shape[1], r.choice((4, 16, 33))
    yield nn.Linear(last, outputs)
    yield nn.LayerNorm(last)
    yield nn.Sequential(nn.Linear(last, last), nn.GELU())
    moved = r.choice((nn.Linear(c, outputs), nn.LayerNorm(c)))
    yield nn.Sequential(_module(lambda y: y.movedim(1, -1)), moved, _module(lambda y: y.movedim(-1, 1)))
    if x.shape[-2] <= 64:
        yield lambda y: F.scaled_dot_product_attention(y, y, y)
        yield lambda y: torch.softmax(y @ y.transpose(-1, -2) / y.shape[-1], -1) @ y


def _functions(r: random.Random, x: Tensor) -> Iterator[Function]:
    """Functions of elements, along an axis, and moves."""
    axis, other = r.randrange(1, x.dim()), r.randrange(1, x.dim())
    yield lambda y: torch.softmax(y, axis)
    yield lambda y: torch.cumsum(y, axis) * 0.1
    yield lambda y: y - y.mean(axis, keepdim=True)
    yield lambda y: y.transpose(axis, other)
    yield lambda y: y.flip(axis)
    yield lambda y: y.narrow(axis, y.shape[axis] // 3, max(1, y.shape[axis] // 2))
    yield lambda y: torch.cat([y, y.abs()], axis)
    yield lambda y: torch.cat(y.chunk(2, axis)[::-1], axis)
    yield lambda y: torch.where(y > 0, y, y * 0.1)  # without a jump: a sum may be zero but for rounding
    yield r.choice(
        (
            torch.relu,
            torch.tanh,
            F.gelu,
            F.silu,
            torch.abs,
            lambda y: y.clamp(-1, 2),
            lambda y: torch.exp(-y * y),
        )
    )


def _module(function: Function) -> nn.Module:
    """A function as a layer."""
    made = nn.Identity()
    made.forward = function  # type: ignore[method-assign]
    return made
