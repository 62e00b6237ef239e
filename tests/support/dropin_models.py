"""Small modules that a drop-in has to be one for, and the check that it is."""

import warnings
from dataclasses import dataclass
from typing import Any

import pytest

import bslite

torch = pytest.importorskip("torch")
nn, F = torch.nn, torch.nn.functional


class Net(nn.Module):
    """Two convolutions, a batch norm and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.fc = nn.Conv2d(8, 8, 3, stride=2), nn.Linear(8, 5)
        nn.init.uniform_(self.bn1.running_var, 0.5, 2.0)
        self.label = "mine"

    def forward(self, x: Any) -> Any:
        y = F.relu(self.bn1(self.conv1(x)))
        return self.fc(F.relu(self.conv2(y)).mean((2, 3)))


class Stack(nn.Module):
    """Linear layers, with whatever function between them."""

    def __init__(self, between: Any = torch.tanh) -> None:
        super().__init__()
        self.first, self.second, self.between = nn.Linear(12, 16), nn.Linear(16, 7), between

    def forward(self, x: Any) -> Any:
        return self.second(self.between(self.first(x)))


class Nested(nn.Module):
    """Keyword arguments, a flag, and results in a dict, a tuple and a list."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, x: Any, y: Any = None, *, scale: float = 1.0, pair: bool = False) -> Any:
        z = self.fc(x) * scale
        if y is not None:
            z = z + self.fc(y["more"][0])
        return {"z": z, "rest": (z.relu(), None, 3, "text"), "list": [x.tanh()]} if pair else z


@dataclass
class Output:
    """A result that torch's pytrees have never heard of."""

    logits: Any
    hidden: Any = None
    name: str = "out"


class WithOutput(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, x: Any) -> Output:
        y = self.fc(x)
        return Output(y.relu(), hidden=(y, y.sigmoid()))


class Detector(nn.Module):
    """Keeps the places with the highest scores: how many, the values say. It counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
        self.heads = nn.ModuleList([nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 1), nn.Sigmoid())])
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.last = x.shape[0]
        rows = self.backbone(x).flatten(2).transpose(1, 2)
        rows = self.heads[0](rows).relu()
        scores = self.heads[1](rows)[..., 0]
        kept = []
        for row, score in zip(rows, scores, strict=True):
            while len(row) > 4 and float(score.max()) > 0:
                best = int(score.argmax())
                row, score = row[score > score[best] * 0.98], score[score > score[best] * 0.98]
                kept.append(row[0])
                break
        return torch.stack(kept)


def images(batch: int = 2, side: int = 9) -> Any:
    return torch.randn(batch, 3, side, side)


def wrapped(module: Any, *, quiet: bool = True, **options: Any) -> Any:
    """``module`` in eval mode, optimized, nothing measured. ``quiet``: what is unsupported is an error."""
    options = {"tune": False, **({"fallback": "error"} if quiet else {}), **options}
    return bslite.optimize(module.eval(), **options)


def agree(module: Any, original: Any, *args: Any, **kwargs: Any) -> Any:
    """Both give the same answer, to what float32 allows; returns the first's."""
    with torch.no_grad():
        got, want = module(*args, **kwargs), original(*args, **kwargs)
    ours, theirs = torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want)
    assert len(ours) == len(theirs)
    for y, z in zip(ours, theirs, strict=True):
        if isinstance(z, torch.Tensor):
            near(y, z)
        else:
            assert y == z
    return got


def near(got: Any, want: Any) -> None:
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    got, want = got.detach().double(), want.detach().double()
    assert float((got - want).norm()) <= 1e-5 * float(want.norm()) + 1e-12


def by_bslite(module: Any, calls_in_torch: int = 0) -> None:
    """No call ran in torch, and nothing of any of them."""
    seen = bslite.report(module)
    assert sum(seen.calls_in_torch.values()) == calls_in_torch, str(seen)
    assert seen.kinds
    assert all(kind.torch_share == 0 for kind in seen.kinds), str(seen)


def said(module: Any, *args: Any, **kwargs: Any) -> list[str]:
    """The warnings of one call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module(*args, **kwargs)
    return [str(w.message) for w in caught]
