"""A row per layer of the engine: its kernels, what it holds, its costs, its distance from the floor."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bslite.explanation.data.fusions import fusions
from bslite.explanation.data.inside import Inner
from bslite.explanation.data.limits import Limits
from bslite.explanation.data.memory import weight_bytes
from bslite.explanation.data.profile import Profile
from bslite.explanation.data.rows import Row
from bslite.explanation.data.stacking import forecasts
from bslite.explanation.data.units import Unit, main_step, predicted, units
from bslite.explanation.data.work import Work, footprint, work
from bslite.machine import Machine
from bslite.ops import Shape
from bslite.plan.cpu.step import CpuPlan
from bslite.spec import ModelSpec


class Times(NamedTuple):
    """The times of a row in seconds, and its ``share`` of the run."""

    seconds: float
    busy: float
    wait: float
    span: float
    share: float

    def part(self, fraction: float) -> "Times":
        """The times of a layer that takes this fraction of a stack."""
        return Times(*(fraction * t for t in self))


@dataclass(frozen=True)
class Whole:
    """The data that all rows are made from. In bytes: ``footprint``, see there; ``weights``, by parameter."""

    spec: ModelSpec
    shapes: Mapping[str, Shape]
    limits: Limits
    footprint: int
    weights: Mapping[str, int]


def layer_rows(
    original: ModelSpec,
    spec: ModelSpec,
    plan: CpuPlan,
    machine: Machine,
    timing: Profile,
    inner: Mapping[int, Inner],
    limits: Limits,
) -> list[Row]:
    """Rows in the order of execution. ``plan`` is made of ``spec``: ``original`` as simplified.

    ``inner``: how the time of each "stack" step, by number, divides among its inner steps.
    """
    whole = Whole(
        spec, spec.infer_shapes(plan.shapes), limits, footprint(spec, plan), weight_bytes(spec, plan)
    )
    expected = forecasts(spec, plan, machine, limits.clock)
    found = [replace(f, forecast=expected.get(f.value)) for f in fusions(original, spec, plan)]
    busy, wait = timing.busy / timing.threads, timing.wait / timing.threads
    total = float((busy + wait).sum()) or 1.0
    columns = (busy + wait, busy, wait, timing.span, (busy + wait) / total)
    rows = []
    stacks = 0
    for unit in units(plan, found):
        index = list(unit.steps)
        times = Times(*(float(column[index].sum()) for column in columns))
        if unit.stack is None:
            rows.append(_row(whole, plan, unit, times))
            continue
        stacks += 1
        at_once = timing.threads / _items(unit)
        after = next((f for f in found[found.index(unit.fusions[-1]) + 1 :] if f.forecast), None)
        ends = f"{after.name} is {after.forecast.why}" if after and after.forecast else "the model ends"
        rows.append(replace(_row(whole, plan, unit, times, at_once), stack=stacks, apart=ends))
        for row in _inside(whole, unit, inner[unit.steps[-1]], times, at_once):
            rows.append(replace(row, steps=(), main=None, stack=stacks, inside=True))
    return rows


def _inside(whole: Whole, stack: Unit, inner: Inner, times: Times, at_once: float) -> list[Row]:
    """A row for each layer of a stack, and of the stacks within it."""
    assert stack.stack is not None
    rows = []
    for unit in units(stack.stack, stack.fusions):
        part = times.part(float(np.sum(inner.shares[list(unit.steps)])))
        if unit.stack is not None:
            rows += _inside(whole, unit, inner.stacks[unit.steps[-1]], part, at_once / _items(unit))
        else:
            rows.append(_row(whole, stack.stack, unit, part, at_once))
    return rows


def _items(unit: Unit) -> int:
    return unit.main.items if unit.main else 1


def _row(whole: Whole, plan: CpuPlan, unit: Unit, times: Times, at_once: float = 1.0) -> Row:
    """The row of ``unit``. ``at_once``: the part of the values' bytes that is in use at the same time."""
    known = [f for f in unit.fusions if f.value]
    cost = work(whole.spec, whole.shapes, plan, known, whole.weights) if known else Work(0, 0, 0)
    main = main_step(plan, unit.steps)
    floor, bound = whole.limits.floor(
        cost.flops, cost.bytes, cost.weights, at_once * cost.bytes, whole.footprint,
        main.record.of_parts if main else 0,
    )  # fmt: skip
    first, last = unit.fusions[0], unit.fusions[-1]
    name, op, holds = first.name, first.op, first.holds
    if unit.stack is not None:
        name, op = f"stack of {len(unit.fusions)}: {first.name} to {last.name}", "stack"
        bands = len(unit.main.bands) if unit.main else 1
        what = "one image" if bands == 1 else f"one of {bands} bands of rows"
        if unit.main and unit.main.tiled:
            name = f"chain of {len(unit.fusions)}: {first.name} to {last.name}"
            what = f"one of {unit.main.items} tiles"
        holds = (f"{len(unit.fusions)} layers, depth-first: one thread takes {what} through all",)
    if main and main.record.arithmetic:
        holds = (*holds, f"by {main.record.arithmetic}")
    if main and main.record.beside:
        holds = (*holds, main.record.beside)
    joined = [s.layers[-1] for s in plan.steps if not unit.steps and last.value and last.value in s.layers]
    holds = (*holds, *(f"computed on the way by {name}" for name in joined))
    apart = "; ".join(part for part in (last.apart, last.forecast.why if last.forecast else "") if part)
    return Row(
        name=name, op=op, nodes=tuple(n for f in unit.fusions for n in f.nodes),
        shape=whole.shapes.get(last.value, ()), kernels=tuple(plan.steps[i].kernel for i in unit.steps),
        steps=unit.steps, main=next((i for i in unit.steps if plan.steps[i] is main), None),
        items=main.items if main else 0, tile=main.tile if main else "",
        flops=cost.flops, bytes=cost.bytes, weights=cost.weights, floor=floor, bound=bound,
        holds=holds, apart=apart, predicted=predicted(unit), **times._asdict(),
    )  # fmt: skip
