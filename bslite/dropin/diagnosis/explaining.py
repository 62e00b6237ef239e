"""`bslite.explain` of a wrapped module: what runs where, then where the time of each part in bslite goes."""

from dataclasses import dataclass
from typing import Any

from bslite.dropin import costs, place
from bslite.dropin.blueprint import Blueprint
from bslite.dropin.diagnosis.reporting import Report, report_of
from bslite.dropin.kinds import Kind
from bslite.dropin.partition import Part
from bslite.dropin.runner import runner_of
from bslite.dropin.training.trainer import Trained
from bslite.errors import InputError
from bslite.explanation import Explanation, GpuExplanation, explain
from bslite.explanation.gpu import explain_on_gpu
from bslite.frontends.torch.checks import tensors as named_tensors
from bslite.frontends.torch.values import is_complex


@dataclass(frozen=True)
class ModuleExplanation:
    """``report``: what runs in bslite and what in torch, with the measurements that decided it. ``parts``: an
    explanation of each part that bslite runs, in the order of the report; ``training``: of the forward and
    the backward pass of each that it trains.
    """

    report: Report
    parts: tuple[Explanation | GpuExplanation, ...]
    training: tuple[tuple[Explanation, Explanation], ...] = ()

    def __str__(self) -> str:
        passes = [
            f"{name} pass\n{text}"
            for both in self.training
            for name, text in zip(("forward", "backward"), both, strict=True)
        ]
        return "\n\n".join(map(str, (self.report, *self.parts, *passes)))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "report": self.report.as_dict(),
            "parts": [part.as_dict() for part in self.parts],
            "training": [[each.as_dict() for each in both] for both in self.training],
        }


def explain_module(module: Any, **options: Any) -> ModuleExplanation:
    """Explain each part of ``module``, once for each trace, at the sizes that it met last of those that were
    new to it; on a GPU, the plan of each part.

    ``options`` are ``threads``, ``runs`` and ``limits`` of `bslite.explain`. Raises InputError if ``module``
    has not been called yet.
    """
    runner = runner_of(module)
    trained = [t for t in (runner.trainer.made.values() if runner.trainer else ()) if isinstance(t, Trained)]
    if not runner.kinds.made and not trained:
        raise InputError("explain(): the module is not specialised yet: call it, or give optimize() inputs")
    options.setdefault("threads", runner.options.threads)
    held = dict(named_tensors(runner.module))
    latest: dict[Any, tuple[Blueprint, Kind]] = {}  # by trace
    for kind in runner.kinds.made.values():
        if isinstance(made := kind.blueprint, Blueprint):
            trace = made.capture if made.capture.origin is None else made.capture.origin[0]
            latest[id(trace)] = made, kind
    specs = [(b.spec(p, held), _called(b, p, kind)) for b, kind in latest.values() for p in b.in_bslite]
    gpus = [place.of(tensor) for tensor in held.values() if place.on_gpu(tensor)]
    if gpus:
        device = gpus[0].index or 0
        plans = (explain_on_gpu(spec, shapes, device=device) for spec, shapes in specs)
        return ModuleExplanation(report_of(runner), tuple(plans))
    halves = [p.halves for t in trained for p in t.parts if p.halves is not None and not p.slower]
    passes = tuple((explain(h.forward, **options), explain(h.backward, **options)) for h in halves)
    parts = tuple(explain(spec, shapes, **options) for spec, shapes in specs)
    return ModuleExplanation(report_of(runner), parts, passes)


def _called(blueprint: Blueprint, part: Part, kind: Kind) -> list[tuple[int, ...]]:
    """The shapes of a part's inputs in the latest call of a kind that had new sizes."""
    graph, free = blueprint.capture.graph, dict[Any, int]()
    given = (n for n in graph.nodes if n.op == "placeholder" and n not in graph.stored)
    for node, shape in zip(given, next(reversed(kind.shapes), ()), strict=False):
        for traced, size in zip(getattr(node.meta["val"], "shape", ()), shape, strict=False):
            if not isinstance(traced, int) and traced.node.expr.is_Symbol:
                free[traced.node.expr] = size
    pairs = [(2,) if is_complex(n.meta["val"]) else () for n in part.inputs]
    return [(*costs.sizes(n, free), *pair) for n, pair in zip(part.inputs, pairs, strict=True)]
