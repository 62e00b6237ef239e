"""Operations without a builder, written out where they stand: torch does not trace the program again."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bslite
from bslite.frontends import from_torch

torch = pytest.importorskip("torch")
from support.torch_modules import Fn  # noqa: E402

from bslite.frontends.torch import decompose  # noqa: E402

F = torch.nn.functional
CASES: dict[str, Callable[..., Any]] = {
    "several results": lambda x: torch.meshgrid(x[0, 0] * 2, x[0, 1], indexing="xy"),
    "one of several": lambda x: torch.meshgrid(x[0, 0] * 2, x[0, 1], indexing="ij")[1] + 1,
    "operations in place": lambda x: F.cosine_similarity(x, x.flip(-1), -1),
    "bits": lambda x: torch.isclose(x, x.round()).float(),
    "an operation of others": lambda x: F.huber_loss(x, x.flip(-1), reduction="none"),
    "a free size": lambda x: torch.nansum(x, 0) / x.shape[0],
    "lists": lambda x: torch.column_stack([x[:, 0], x[:, 1]]),
    "numbers beside tensors": lambda x: torch.logit(x.sigmoid(), 0.2),
    "a constant with an input": lambda x: torch.outer(torch.arange(3.0), x[0, 0]),
    "named arguments": lambda x: torch.addr(x[0], x[0, :, 0], x[1, 0], beta=0.5, alpha=2),
    "twice": lambda x: torch.kron(torch.kron(x[0, :2, :2], x[0, 1:, :2]), x[1, :2, :2]),
}


@pytest.mark.parametrize("name", CASES)
def test_written_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def again(*_: Any) -> Any:
        raise AssertionError("torch traces the program again")

    written: list[str] = []

    def noted(graph: Any, node: Any, new: Any) -> Any:
        written.append(str(node.target))
        return in_others(graph, node, new)

    in_others = decompose._in_others
    monkeypatch.setattr(decompose, "_in_others", noted)
    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", again)
    torch.manual_seed(0)
    net, x = Fn(CASES[name]).eval(), torch.randn(4, 3, 5)
    spec = from_torch(net, x)
    assert written
    for given in (x, torch.randn(7, 3, 5)):
        got = bslite.run(spec, given.numpy())
        want = torch.utils._pytree.tree_leaves(net(given))
        for a, b in zip(got if len(want) > 1 else [got], want, strict=True):
            assert np.linalg.norm(a - b.numpy()) <= 1e-6 * np.linalg.norm(b.numpy())
    with torch.no_grad():
        fast = bslite.optimize(net, tune=False)
        for a, b in zip(
            torch.utils._pytree.tree_leaves(fast(x)), torch.utils._pytree.tree_leaves(net(x)), strict=True
        ):
            assert torch.linalg.norm(a - b) <= 1e-6 * torch.linalg.norm(b)
