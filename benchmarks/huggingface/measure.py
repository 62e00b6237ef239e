"""One model at two sizes: right or wrong, what ran in torch, first calls, and both engines in turns."""

import copy
import statistics
import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import bslite
from benchmarks.blocks import in_blocks
from benchmarks.huggingface.models import given
from bslite.dropin.runner import runner_of
from bslite.verification import FACTOR
from bslite.verification import TINY as TINY_ERROR


@dataclass(frozen=True)
class Result:
    """What was found of a model.

    ``errors``: bslite's and torch's, relative to float64, of each result at two sizes. ``share``: of flops in
    torch. ``first``, ``other``: seconds of the first call and of the first of another size. ``ours``,
    ``theirs``: seconds of a call. ``in_torch``: what ran there and why. ``failures``: what else went wrong.
    """

    name: str
    errors: tuple[tuple[float, float], ...] = ()
    share: float = 0.0
    first: float | None = None
    other: float | None = None
    ours: float | None = None
    theirs: float | None = None
    in_torch: tuple[str, ...] = ()
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        """By the rule that holds everywhere here."""
        return all(ours <= FACTOR * theirs + TINY_ERROR for ours, theirs in self.errors)

    @property
    def ratio(self) -> float | None:
        """torch's time divided by bslite's."""
        return self.theirs / self.ours if self.theirs and self.ours else None


def examine(name: str, net: Any, batch: int, length: int, threads: int, rounds: int) -> Result:
    """One model at two sizes, against torch in float64, then in turns with torch eager at the first."""
    import torch

    exact, fast = copy.deepcopy(net).double(), bslite.optimize(net, tune=False, threads=threads)
    firsts, errors = [], []
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sizes in ((batch, length), (batch + 1, length * 3 // 4)):
            args, named = given(name, net, *sizes)
            start = time.perf_counter()
            ours = fast(*args, **named)
            firsts.append(time.perf_counter() - start)
            theirs = net(*args, **named)
            truth = exact(*map(doubled, args), **{k: doubled(x) for k, x in named.items()})
            for mine, peer, true in zip(*map(numbers, (ours, theirs, truth)), strict=True):
                errors.append((distance(mine, true), distance(peer, true)))
        args, named = given(name, net, batch, length)
        taken = in_blocks(
            {"bslite": lambda: fast(*args, **named), "torch": lambda: net(*args, **named)}, rounds
        )
    report = bslite.report(fast)
    lacking = [f"torch: {item}" for kind in report.kinds for item in kind.unsupported]
    reasons = (*lacking, *(f"{n} call(s) in torch: {why}" for why, n in report.calls_in_torch.items()))
    runner_of(fast).forget()
    share = max((kind.torch_share for kind in report.kinds), default=1.0)
    (first, other), why = firsts, tuple(dict.fromkeys(reasons))
    ours, theirs = (statistics.median(taken[engine]) for engine in ("bslite", "torch"))
    return Result(name, tuple(errors), share, first, other, ours, theirs, why)


def doubled(x: Any) -> Any:
    """A tensor of float32 in float64; anything else as it is."""
    return x.double() if getattr(x, "is_floating_point", bool)() else x


def distance(x: Any, truth: Any) -> float:
    """Relative, in the L2 norm; absolute of zeros, which some models make of random weights."""
    return float((x.double() - truth).norm()) / (float(truth.norm()) or 1.0)


def numbers(result: Any) -> list[Any]:
    """The tensors of floats in a result."""
    import torch

    leaves = torch.utils._pytree.tree_leaves(result)
    return [x for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]
