"""The steps of a plan, gathered by layer."""

from collections.abc import Sequence
from dataclasses import dataclass

from bslite.explanation.data.fusions import Fusion
from bslite.plan.cpu.step import CpuPlan, CpuStep

#: Kernels that only bring data into place for the one that computes.
HELPERS = ("copy", "interleave", "halo", "fill")


@dataclass(frozen=True)
class Unit:
    """Steps that are timed together: those of a layer, or of a stack of layers, the "stack" step last."""

    fusions: tuple[Fusion, ...]
    steps: tuple[int, ...]
    main: CpuStep | None
    stack: CpuPlan | None = None


def units(plan: CpuPlan, found: Sequence[Fusion]) -> list[Unit]:
    """The steps of a plan by layer; layers without a step stand where the model has them."""
    home = {node: f for f in found for node in f.members}
    steps: dict[str, list[int]] = {}
    stacks: dict[int, list[Fusion]] = {}
    inside: dict[str, int] = {}  # value -> the step of the stack it is made in
    for i, step in enumerate(plan.steps):
        if step.inner is not None:
            held = {home[n].value for n in step.layers if n in home}
            stacks[i] = [f for f in found if f.value in held]
            inside |= dict.fromkeys(held, i)
    for i, step in enumerate(plan.steps):
        if step.inner is None:
            owner = home.get(step.layers[-1]) if step.layers else None
            steps.setdefault(owner.value if owner else "", []).append(i)
    placed: list[tuple[float, Unit]] = []
    before = -1.0
    for f in found:
        if f.value in inside:
            before = float(inside[f.value])
            continue
        mine = tuple(steps.get(f.value, ()))
        before = float(mine[-1]) if mine else before
        placed.append((before, Unit((f,), mine, main_step(plan, mine))))
    for i, layers in stacks.items():
        # The zeros around what leaves it are filled by steps before it.
        helpers = [s for f in layers for s in steps.get(f.value, ())]
        placed.append((i, Unit(tuple(layers), (*helpers, i), plan.steps[i], plan.steps[i].inner)))
    others = steps.get("", [])
    for name, what, at in (
        ("inputs", "widens inputs of bytes", -2.0),
        ("outputs", "brings outputs to where they are wanted", float(len(plan.steps))),
    ):
        mine = tuple(i for i in others if (plan.steps[i].kernel == "widen") == (name == "inputs"))
        if mine:
            rest = Fusion(name, "copy", "", (), (), (what,), "")
            placed.append((at, Unit((rest,), mine, main_step(plan, mine))))
    return [unit for _, unit in sorted(placed, key=lambda pair: pair[0])]


def main_step(plan: CpuPlan, steps: Sequence[int]) -> CpuStep | None:
    """The last step that does more than bring data into place; else the last."""
    chosen = [plan.steps[i] for i in steps]
    return next((s for s in reversed(chosen) if s.kernel not in HELPERS), chosen[-1] if chosen else None)


def predicted(unit: Unit) -> float | None:
    """The sum of the planner's prices in seconds; None if a layer with a step has no price."""
    seconds = [f.forecast.seconds for f in unit.fusions if f.forecast is not None]
    return sum(seconds) if unit.steps and len(seconds) == len(unit.fusions) else None
