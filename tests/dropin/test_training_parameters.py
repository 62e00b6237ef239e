"""Parameters and buffers in training, wherever an operation takes them: they are learnt, and never stale."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.torch_modules import Made
from support.training import alike, step
from torch import Tensor, nn

USES: dict[str, tuple[Callable[[Any, Tensor], Tensor], tuple[int, ...]]] = {
    "divided by": (lambda m, x: m.a(x) / m.p, (4,)),
    "divided by a number": (lambda m, x: m.a(x) / m.p, ()),
    "divided": (lambda m, x: m.p / (1 + m.a(x).square()), (4,)),
    "added, scaled": (lambda m, x: torch.add(m.a(x), m.p, alpha=0.5), (5, 4)),
    "subtracted, scaled": (lambda m, x: torch.sub(m.a(x), m.p, alpha=2), (4,)),
    "subtracted from": (lambda m, x: torch.rsub(m.a(x), m.p), (4,)),
    "a number's exponential": (lambda m, x: m.a(x) * m.p.exp(), ()),
    "a product's bias": (lambda m, x: torch.addmm(m.p[0], m.a(x)[0], m.p), (4, 7)),
    "on the right": (lambda m, x: m.a(x)[0] @ m.p, (4, 7)),
    "on the left": (lambda m, x: m.p @ m.a(x), (6, 5)),
    "a weight both ways": (lambda m, x: F.linear(m.a(x), m.p) @ m.p, (7, 4)),
    "transposed": (lambda m, x: F.linear(m.a(x), m.p.t()), (4, 7)),
    "a vector": (lambda m, x: m.a(x) @ m.p, (4,)),
    "an exponent": (lambda m, x: m.a(x).abs().pow(m.p), (4,)),
    "slopes of a prelu": (lambda m, x: F.prelu(m.a(x), m.p), (5,)),
    "a filter": (lambda m, x: F.conv_transpose1d(F.conv1d(m.a(x), m.p), m.p), (4, 5, 2)),
    "a table": (lambda m, x: m.a(x)[:, :2] + m.p[torch.tensor([[1, 2]])], (9, 4)),
    "joined": (lambda m, x: torch.cat([m.p.expand(3, 1, 4), m.a(x)], 1), (1, 1, 4)),
    "chosen": (lambda m, x: torch.where(x > 0, m.p, m.a(x)), (4,)),
    "the larger": (lambda m, x: torch.maximum(m.a(x), m.p), (4,)),
    "its norm": (lambda m, x: m.a(x) * m.p.norm(), (4,)),
}


@pytest.mark.parametrize("learnt", [True, False], ids=["parameter", "buffer"])
@pytest.mark.parametrize("use", USES)
def test_uses_of_parameters(use: str, learnt: bool) -> None:
    torch.manual_seed(0)
    forward, shape = USES[use]
    net: Any = Made(forward, a=nn.Linear(4, 4))
    value = torch.rand(shape) + 0.5
    if learnt:
        net.p = nn.Parameter(value)
    else:
        net.register_buffer("p", value)

    def run(module: Any, inputs: Any) -> Any:
        y = module(*inputs)
        y.square().mean().backward()
        with torch.no_grad():
            module.p.mul_(1.1)  # the next step's is another
        return y

    alike(net.train(), [(torch.randn(3, 5, 4),) for _ in range(3)], run)


def test_outputs_may_have_one_name_and_be_one_value() -> None:
    def forward(m: Any, x: Tensor) -> Any:
        y = m.a(x)
        return y, y.view(5, -1), F.cross_entropy(y.view(-1, 3), torch.arange(5) % 3)

    torch.manual_seed(0)
    alike(Made(forward, a=nn.Linear(8, 3)).train(), [(torch.randn(5, 8),)])


def test_parameters_that_share_memory_have_gradients_of_their_own() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def run(module: Any, inputs: Any) -> Any:
        module[2].weight.data = module[0].weight.data
        return step(module, inputs)

    alike(net.train(), [(torch.randn(5, 8),)], run, reason="trains no part of it")
