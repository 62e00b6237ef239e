"""A row per layer of the engine: what runs it, what it holds, what it costs, how far it is from its floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bslite.explanation.fusions import Fusion, fusions
from bslite.explanation.limits import Limits
from bslite.explanation.profile import Profile
from bslite.explanation.stacking import forecasts
from bslite.explanation.work import Work, footprint, work
from bslite.machine import Machine
from bslite.ops import Shape
from bslite.plan import Plan, Step
from bslite.spec import ModelSpec

#: Kernels that only bring data into place for the one that computes.
HELPERS = ("copy", "interleave", "halo", "fill")


@dataclass(frozen=True)
class Row:
    """One layer as executed, or one stack of them. Times are in seconds, traffic in bytes.

    ``seconds`` is its part of the run (None for a layer inside a stack, which is timed as a whole): what
    threads spent on its items (``busy``) or waiting for their end (``wait``), divided by the number of
    threads, so that the rows add up to the run. ``bytes`` and ``weights`` are compulsory traffic: values in
    and out, parameters, once each. ``floor`` is what they and ``flops`` take at least, ``bound`` what sets
    it.
    """

    name: str
    op: str
    nodes: tuple[str, ...]
    shape: Shape
    kernels: tuple[str, ...]
    steps: tuple[int, ...]
    main: int | None  # of ``steps``, the one that computes
    items: int
    tile: str
    flops: int
    bytes: int
    weights: int
    floor: float
    bound: str
    seconds: float | None
    busy: float
    wait: float
    span: float
    share: float
    holds: tuple[str, ...]
    apart: str
    stack: int | None = None
    predicted: float | None = None

    @property
    def gflops(self) -> float:
        """GFLOP/s over its part of the run; 0 where it computes nothing or is not timed."""
        return self.flops / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gbytes(self) -> float:
        """GB/s of compulsory traffic over its part of the run."""
        return (self.bytes + self.weights) / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def roofline(self) -> float:
        """Floor over time: 1 is as fast as the machine can."""
        return self.floor / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Unit:
    """What is timed as one: the steps of a layer, or a stack of layers."""

    fusions: tuple[Fusion, ...]
    steps: tuple[int, ...]
    main: Step | None
    stack: Plan | None = None


def layer_rows(
    original: ModelSpec, spec: ModelSpec, plan: Plan, machine: Machine, timing: Profile, limits: Limits
) -> list[Row]:
    """Rows in the order of execution. ``plan`` is made of ``spec``: ``original`` as simplified."""
    expected = forecasts(spec, plan, machine, limits.clock)
    found = [
        replace(f, forecast=expected.get(f.value), apart=_also(f.apart, expected[f.value].why))
        if f.value in expected
        else f
        for f in fusions(original, spec, plan)
    ]
    shapes = spec.infer_shapes(plan.shapes)
    costs = {f.value: work(spec, shapes, plan, [f]) for f in found}
    seconds = (timing.busy + timing.wait) / timing.threads
    total = float(seconds.sum()) or 1.0
    size = footprint(spec, plan)
    rows = []
    stacks = 0
    for unit in units(plan, found):
        cost = work(spec, shapes, plan, unit.fusions)
        index = list(unit.steps)
        floor, bound = limits.floor(cost.flops, cost.bytes, cost.weights, size)
        common: dict[str, Any] = {
            "steps": unit.steps, "seconds": float(seconds[index].sum()), "floor": floor, "bound": bound,
            "busy": float(timing.busy[index].sum()) / timing.threads,
            "wait": float(timing.wait[index].sum()) / timing.threads,
            "span": float(timing.span[index].sum()), "share": float(seconds[index].sum()) / total,
            "items": unit.main.items if unit.main else 0, "predicted": predicted(unit),
            "main": next((i for i in unit.steps if plan.steps[i] is unit.main), None),
            "kernels": tuple(plan.steps[i].kernel for i in unit.steps),
        }  # fmt: skip
        if unit.stack is None:
            rows.append(_row(unit.fusions[0], shapes, cost, unit.main, common))
            continue
        stacks += 1
        rows.append(_stack_row(unit, shapes, cost, stacks, common))
        rows += _members(unit, shapes, costs, limits, size, stacks)
    return rows


def units(plan: Plan, found: Sequence[Fusion]) -> list[Unit]:
    """The plan's steps gathered by layer, with the layers that take no step where they stand in the model."""
    home = {node: f for f in found for node in f.members}
    steps: dict[str, list[int]] = {}
    stacks: dict[int, list[Fusion]] = {}
    inside: set[str] = set()
    for i, step in enumerate(plan.steps):
        if step.stack is not None:
            held = {home[n].value for n in step.layers if n in home}
            stacks[i] = [f for f in found if f.value in held]
            inside |= held
        else:
            owner = home.get(step.layers[-1]) if step.layers else None
            steps.setdefault(owner.value if owner else "", []).append(i)
    placed: list[tuple[float, Unit]] = []
    before = -1.0
    for f in found:
        if f.value in inside:
            before = max(i for i, held in stacks.items() if f in held)
            if f.value not in steps:
                continue
        mine = tuple(steps.get(f.value, ()))
        before = float(mine[-1]) if mine else before
        placed.append((before, Unit((f,), mine, main_step(plan, mine))))
    for i, layers in stacks.items():
        placed.append((i, Unit(tuple(layers), (i,), plan.steps[i], plan.steps[i].stack)))
    if "" in steps:
        mine = tuple(steps[""])
        rest = Fusion("outputs", "copy", "", (), (), ("brings outputs into the caller's arrays",), "")
        placed.append((len(plan.steps), Unit((rest,), mine, main_step(plan, mine))))
    return [unit for _, unit in sorted(placed, key=lambda pair: pair[0])]


def main_step(plan: Plan, steps: Sequence[int]) -> Step | None:
    """The last step that does more than bring data into place; else the last."""
    chosen = [plan.steps[i] for i in steps]
    return next((s for s in reversed(chosen) if s.kernel not in HELPERS), chosen[-1] if chosen else None)


def tile_of(step: Step | None) -> str:
    """Register tile as ``rows x vector registers``, where the kernel has one."""
    rows = step.args.get("rows1") if step else None
    return f"{rows}x{step.args.get('width', 1)}" if step and rows else ""


def predicted(unit: Unit) -> float | None:
    """Seconds the planner's prices add up to, where it has one for every layer that takes a step."""
    seconds = [f.forecast.seconds for f in unit.fusions if f.forecast is not None]
    return sum(seconds) if unit.steps and len(seconds) == len(unit.fusions) else None


def _also(first: str, second: str) -> str:
    return f"{first}; {second}" if first and second else first or second


def _row(
    f: Fusion, shapes: Mapping[str, Shape], cost: Work, main: Step | None, common: dict[str, Any]
) -> Row:
    return Row(
        name=f.name, op=f.op, nodes=f.nodes, shape=shapes.get(f.value, ()), tile=tile_of(main),
        flops=cost.flops, bytes=cost.bytes, weights=cost.weights, holds=f.holds, apart=f.apart, **common,
    )  # fmt: skip


def _stack_row(
    unit: Unit, shapes: Mapping[str, Shape], cost: Work, number: int, common: dict[str, Any]
) -> Row:
    first, last = unit.fusions[0], unit.fusions[-1]
    nodes = tuple(n for f in unit.fusions for n in f.nodes)
    holds = (f"{len(unit.fusions)} layers run depth-first, one image at a time",)
    return Row(
        name=f"stack {number}: {first.name} to {last.name}", op="stack", nodes=nodes, tile="",
        shape=shapes[last.value], flops=cost.flops, bytes=cost.bytes, weights=cost.weights, holds=holds,
        apart=last.apart, stack=number, **common,
    )  # fmt: skip


def _members(
    unit: Unit, shapes: Mapping[str, Shape], costs: Mapping[str, Work], limits: Limits, size: int, number: int
) -> list[Row]:
    """The layers inside a stack: planned like others, timed only together."""
    assert unit.stack is not None
    rows = []
    for inner in units(unit.stack, unit.fusions):
        if not inner.fusions[0].value:
            continue
        cost = costs[inner.fusions[0].value]
        floor, bound = limits.floor(cost.flops, cost.bytes, cost.weights, size)
        common: dict[str, Any] = {
            "steps": (), "main": None, "seconds": None, "busy": 0.0, "wait": 0.0, "span": 0.0, "share": 0.0,
            "floor": floor, "bound": bound, "items": inner.main.items if inner.main else 0, "stack": number,
            "kernels": tuple(unit.stack.steps[i].kernel for i in inner.steps),
        }  # fmt: skip
        rows.append(_row(inner.fusions[0], shapes, cost, inner.main, common))
    return rows
