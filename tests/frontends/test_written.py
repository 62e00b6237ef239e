"""Operations in place become values without another trace; torch rewrites what that leaves."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from bslite.errors import UnsupportedError  # noqa: E402
from bslite.frontends.torch.capture import functional, trace  # noqa: E402
from bslite.frontends.torch.graph import writes  # noqa: E402
from bslite.frontends.torch.tracing.quiet import quiet  # noqa: E402
from bslite.frontends.torch.written import functionalized  # noqa: E402


class Net(torch.nn.Module):
    """A function of ``tanh`` of the input, and of a buffer."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("held", torch.randn(3, 5))

    def forward(self, x: Any) -> Any:
        return self.function(torch.tanh(x), self.held)


def exported(net: Any, x: Any, free: bool) -> Any:
    shapes = ({0: torch.export.Dim.DYNAMIC},) if free else None
    return trace(net, (x,), shapes)


def delta(y: Any, held: Any) -> Any:
    """As linear attention goes through a chunk, line by line."""
    for i in range(1, 4):
        line = y[..., i, :i].clone()
        y[..., i, :i] = line + (line.unsqueeze(-1) * y[..., :i, :i].clone()).sum(-2)
    return y + held[0]


VALUES = {
    "a slice": lambda y, held: [y[:, 1:].mul_(2), y],
    "an entry, seen by a view from before": lambda y, held: [z := y.transpose(0, 1), y[:, 0].zero_(), z],
    "a view of a view": lambda y, held: [y.permute(1, 2, 0)[0].unsqueeze(0).add_(1), y],
    "lines by lines": delta,
    "all of it, flat": lambda y, held: [y.view(-1).relu_(), y],
    "another dtype": lambda y, held: [y[:, 0].copy_(y[:, 1] > 0), y],
    "one number for many": lambda y, held: [y[:, 1].copy_(held[0, 0]), y],
    "detached": lambda y, held: [z := y.detach(), z.mul_(0.5), y],
    "memory that starts as zeros": lambda y, held: [z := torch.zeros(3, 5), z[1].add_(y[0, 0]), z],
    "by a condition": lambda y, held: y.masked_fill_(y > 0.2, 0.1),
    "a view of what then has other strides": lambda y, held: [
        v := y.view(y.shape[0], -1),
        w := y.transpose(1, 2),
        w.copy_(w.contiguous().softmax(-1)),
        v + 1,
    ],
    "a dropout that does nothing": lambda y, held: [z := F.dropout(y, 0.5, False), z[:, 0].zero_(), z + y],
    "of the same type": lambda y, held: [z := y.type_as(held), z[:, 0].mul_(2), y],
    "of no elements": lambda y, held: [
        y[:, 0:-3].zero_(),
        y[:, 3:].copy_(y[:, :0]),
        z := y[:, 1:],
        z.mul_(2),
        y,
    ],
    "another shape of no elements": lambda y, held: [z := y[:0] * 1, z.unsqueeze_(0), y.relu_(), z],
    "divided and rounded down": lambda y, held: [z := y * 8, z.floor_divide_(2), z],
    "to the power of a tensor": lambda y, held: [y[:, 0].abs_().pow_(held[0].abs()), y],
    "an einsum that only permutes": lambda y, held: [
        v := y[:, :2],
        z := torch.einsum("bij->jbi", v),
        y[:, 0].zero_(),
        z * 2,
        v,
    ],
    "from the end of a free axis": lambda y, held: [y.narrow(0, y.shape[0] - 1, 1).zero_(), y],
    "the last of a free axis": lambda y, held: [y.select(0, -1).add_(held), y],
}
TORCHS = {
    "one of several results": lambda y, held: [y.chunk(2, 2)[1].zero_(), y],
    "a diagonal": lambda y, held: [y[:, :, :3].diagonal(0, 1, 2).zero_(), y],
    "another shape": lambda y, held: [z := y[0], y.transpose_(1, 2), y, z],
    "nothing": lambda y, held: y + held,
}


#: What torch.export takes for new tensors, and torch would forget.
FORGOTTEN = {
    "by an einsum": lambda y, held: [z := torch.einsum("bij->jbi", y), z.add_(1), y],
    "seen by meshgrid": lambda y, held: [
        z := torch.meshgrid(y[0, 0], y[0, 1], indexing="ij")[0], y.add_(1), z * 2
    ],
}  # fmt: skip


@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize("name", VALUES)
def test_writes_become_values(name: str, free: bool) -> None:
    net, x = Net(VALUES[name]).eval(), torch.randn(4, 4, 5) if name == "lines by lines" else None
    x = torch.randn(4, 3, 5) if x is None else x
    program = exported(net, x, free)
    with torch.no_grad(), quiet():
        made = functionalized(program)
    assert made is not None
    assert not any(writes(n) for n in made.graph.nodes)
    assert any(writes(n) for n in program.graph.nodes)  # which is as it was
    for given in [x, torch.cat([x, x + 1])] if free else [x]:
        with torch.no_grad(), quiet():
            torch.testing.assert_close(made.module()(given), net(given))


@pytest.mark.parametrize("name", TORCHS)
def test_the_rest_is_left_to_torch(name: str) -> None:
    program = exported(Net(TORCHS[name]).eval(), torch.randn(4, 3, 5), False)
    with torch.no_grad(), quiet():
        assert functionalized(program) is None
        assert not any(writes(n) for n in functional(program).graph.nodes)


@pytest.mark.parametrize("name", FORGOTTEN)
def test_memory_that_torch_would_forget_is_an_error(name: str) -> None:
    program = exported(Net(FORGOTTEN[name]).eval(), torch.randn(4, 3, 5), False)
    with torch.no_grad(), quiet(), pytest.raises(UnsupportedError, match="in place shows elsewhere"):
        functional(program)


def test_a_buffer_that_is_written_to_is_left_to_torch() -> None:
    program = exported(Net(lambda y, held: y + held.add_(1)).eval(), torch.randn(4, 3, 5), False)
    with torch.no_grad(), quiet():
        assert functionalized(program) is None
