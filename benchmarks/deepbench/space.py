"""``python -m benchmarks.deepbench.space``: every point of the CPU's loop parameters, predicted and measured.

For each layer of DeepBench's list all points take turns; then the one the search picks and the fastest of the
others take turns alone, more often, because the least of many medians is low by chance.
"""

import argparse
import functools
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from benchmarks import output
from benchmarks.deepbench.layer import Case, Layer, each_layer
from benchmarks.deepbench.points import Point, add_options, parse
from benchmarks.tables import geometric_mean, median_ratio, ms, ratio, table
from bslite.cli.timing import interleaved
from bslite.engines.cpu.detect import detect
from bslite.engines.cpu.engine import engine_for
from bslite.engines.cpu.session import Session
from bslite.explore import Estimate, Recurrent, search
from bslite.explore.cpu import Explorer, Loops
from bslite.explore.space import Point as LoopPoint
from bslite.machine import Machine
from bslite.ops import Shape
from bslite.plan import build_plan
from bslite.plan.core.views import contiguous
from bslite.plan.cpu.tuning import Tuning
from bslite.spec import Array, ModelSpec

CAP, SECONDS, ROUNDS = 12, 25.0, 5
QUICK_CAP, QUICK_SECONDS = 3, 1.0
RIVALS = 3  # others that the pick meets again
LEAST, MOST, SHARE = 30, 400, 0.2  # rounds of that: as many as take this share of the seconds
NEAR = 1.05  # what the pick may take, the best point taking 1


@dataclass
class Explored:
    """One layer at one batch size.

    ``points`` holds values of the axes and predicted and measured seconds, the pick first; measured is None
    where the answer was wrong.
    """

    net: str
    batch: int
    threads: int
    steps: int
    lengths: tuple[int, ...]
    rounds: int = 0
    points: list[dict[str, Any]] = field(default_factory=list)
    best: int = 0  # the number of the fastest point, of those that met again
    gap: float | None = None  # what the pick takes, that one taking 1: at least 1
    correlation: float | None = None  # Spearman's, of predicted and measured
    failures: dict[str, str] = field(default_factory=dict)


def candidates(problem: Recurrent, machine: Machine) -> Sequence[Estimate]:
    """Every point that is possible and what it is predicted to take, the search's pick first."""
    return search(Explorer(), problem, machine).ranked


def session_with(spec: ModelSpec, shape: Shape, machine: Machine, point: LoopPoint) -> Session:
    """The model planned with these loop parameters; packed weights are shared by all such sessions of it."""
    engine = engine_for(spec)
    plan = build_plan(
        engine.spec, [shape], machine, input_strides=[contiguous(shape)], tuning=Tuning(Loops.of(point))
    )
    return Session(plan, engine.constant)


def explore(layer: Layer, batch: int, threads: int, rounds: int, seconds: float) -> Explored:
    """Predict and measure all points; fewer rounds, but two, where ``seconds`` would not do."""
    point = layer.point
    found = Explored(point.name, batch, threads, point.steps, point.lengths)
    machine = detect(threads)
    tried = candidates(point.problem(batch), machine)
    calls = _right_ones(layer, batch, [e.point for e in tried], found)
    start = time.perf_counter()
    for call in calls.values():
        call()
    one = 2 * (time.perf_counter() - start)
    found.rounds = max(2, min(rounds, int(seconds / one))) if calls else 0
    each = {i: statistics.median(s) for i, s in _timed(calls, found.rounds).items()}
    found.points = [
        {"values": e.point.as_dict(), "predicted": e.seconds, "measured": each.get(i)}
        for i, e in enumerate(tried)
    ]
    known = [(p["predicted"], p["measured"]) for p in found.points if p["measured"] is not None]
    found.correlation = spearman([p for p, _ in known], [m for _, m in known])
    if 0 in each:
        _meet_again(calls, each, found, seconds)
    return found


def _right_ones(
    layer: Layer, batch: int, points: Sequence[LoopPoint], found: Explored
) -> dict[int, Callable[[], object]]:
    """A call for each point whose answer is right, by its number."""
    from pathlib import Path

    case = Case(layer, batch, Path())
    machine = detect(found.threads)
    calls: dict[int, Callable[[], object]] = {}
    for i, point in enumerate(points):
        session = session_with(layer.spec, case.x.shape, machine, point)
        out = [np.empty(v.shape, np.float32) for v in session.plan.outputs]
        call = functools.partial(session.run, [case.x], out)
        call()
        if wrong := case.wrong(out[0]):
            found.failures[str(point)] = wrong
        else:
            calls[i] = call
    return calls


def _timed(calls: dict[int, Callable[[], object]], rounds: int) -> dict[int, list[float]]:
    """All in turns, without pauses: they are of one engine, whose threads are the same."""
    named = {str(i): call for i, call in calls.items()}
    return {int(i): s for i, s in interleaved(named, rounds, per_turn=1, turned=True, settle=0).items()}


def _meet_again(
    calls: dict[int, Callable[[], object]], each: dict[int, float], found: Explored, seconds: float
) -> None:
    """The pick, number 0, and the fastest others once more."""
    others = sorted((i for i in each if i), key=each.__getitem__)[:RIVALS]
    one = 2 * sum(each[i] for i in (0, *others))
    rounds = max(LEAST, min(MOST, int(SHARE * seconds / one)))
    again = _timed({i: calls[i] for i in (0, *others)}, rounds)
    gaps = {i: median_ratio(again[0], again[i]) for i in again}
    found.best = max(gaps, key=gaps.__getitem__)
    found.gap = gaps[found.best]


def ranks(values: Sequence[float]) -> Array:
    """The place of each among all, from 0; equal ones share the mean of theirs."""
    _, inverse, counts = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    found: Array = (last - (counts - 1) / 2)[inverse]
    return found


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Pearson's correlation of the ranks, -1 to 1; None where there is no order on a side."""
    a, b = ranks(one), ranks(other)
    if len(a) < 2 or a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def as_dict(results: Sequence[Explored], limits: None, header: dict[str, Any]) -> dict[str, Any]:
    """Everything, ready for JSON."""
    return {**header, "summary": summary(results), "results": [asdict(r) for r in results]}


def summary(results: Sequence[Explored]) -> dict[str, Any]:
    """Correlation over all layers and in the middle of each's, the mean gap, and the layers beyond `NEAR`."""
    known = [(p["predicted"], p["measured"]) for r in results for p in r.points if p["measured"] is not None]
    each = sorted(r.correlation for r in results if r.correlation is not None)
    return {
        "points": len(known),
        "correlation": spearman([p for p, _ in known], [m for _, m in known]),
        "median_correlation": each[len(each) // 2] if each else None,
        "gap": geometric_mean([r.gap for r in results]),
        "far": [f"{r.net}, batch {r.batch}" for r in results if r.gap is None or r.gap > NEAR],
    }


def markdown(results: Sequence[Explored], limits: None, header: dict[str, Any]) -> str:
    """A row for each layer and batch, the summary, what failed, where it was measured."""
    head = ["layer", "pick", "best", "batch", "steps", "points", "predicted, ms", "measured, ms"]
    head += ["fastest, ms", "slowest, ms", "pick / best", "rank correlation"]
    rows = []
    for r in results:
        measured = [p["measured"] for p in r.points if p["measured"] is not None]
        pick, best = r.points[0], r.points[r.best]
        row = [r.net, _values(pick), "the same" if r.best == 0 else _values(best), str(r.batch), str(r.steps)]
        row += [str(len(r.points)), ms(pick["predicted"], 2), ms(pick["measured"], 2)]
        row += [ms(min(measured, default=None), 2), ms(max(measured, default=None), 2), ratio(r.gap)]
        rows.append([*row, _signed(r.correlation)])
    found = summary(results)
    lines = [
        f"Spearman's rank correlation of predicted and measured: {_signed(found['correlation'])} over all "
        f"{found['points']} points together, {_signed(found['median_correlation'])} in the median layer.",
        f"The pick against the best point: {ratio(found['gap'])} in the geometric mean; more than "
        f"{NEAR:.2f} at: {'; '.join(found['far']) or 'none'}.",
    ]
    note = (
        "All points in turns; then the search's `pick` and the three fastest others in turns alone: `pick / "
        "best` is the median of each round's ratio to the fastest of these, 1 where none is faster. "
        "Steps are few: one costs as much as any other."
    )
    return output.document(
        table(head, rows, left=3),
        "\n".join(f"- {line}" for line in lines),
        note,
        output.failed(results, lambda r: f"{r.net}, batch {r.batch}"),
        output.where(header),
    )


def _values(point: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in point["values"].items())


def _signed(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.2f}"


def main(arguments: list[str] | None = None) -> int:
    """Measure; exit code 1 if some point of a space gives a wrong answer."""
    options, points = _options(arguments)
    run = output.Run("deepbench_space", options, as_dict, markdown)
    for layer in each_layer(points, options, run.note):
        for batch in options.batch:
            found = explore(layer, batch, options.threads, options.rounds, options.seconds)
            run.add(
                found,
                f"{found.net} batch {batch}: {len(found.points)} points, pick / best {ratio(found.gap)}, "
                f"rank correlation {_signed(found.correlation)}",
            )
        del layer
    run.finish()
    return int(any(r.failures for r in run.results))


def _options(arguments: list[str] | None) -> tuple[argparse.Namespace, list[Point]]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deepbench.space", description=__doc__)
    add_options(parser, [1], f"most time steps (default: {CAP})")
    parser.add_argument("--threads", type=int, default=2, help="(default: 2)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"of turns (default: {ROUNDS})")
    parser.add_argument(
        "--seconds", type=float, help=f"for all points of a layer and batch, about (default: {SECONDS:.0f})"
    )
    parser.add_argument("--quick", action="store_true", help="few steps and little time: shows that it runs")
    options, points = parse(parser, arguments, QUICK_CAP, CAP)
    options.seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    return options, points


if __name__ == "__main__":
    sys.exit(main())
