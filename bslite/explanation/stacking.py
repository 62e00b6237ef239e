"""What the planner expected of each layer, and why it put the layer into a stack or left it out."""

from __future__ import annotations

from dataclasses import dataclass

from bslite.machine import Machine
from bslite.passes import fuse
from bslite.plan import Plan
from bslite.plan.stacks import one_image, price, stackable, weights_stay_in_l3
from bslite.spec import ModelSpec


@dataclass(frozen=True)
class Forecast:
    """``seconds`` the planner's price says, for the way the layer is run; ``why`` it is run that way."""

    seconds: float
    why: str


def forecasts(spec: ModelSpec, plan: Plan, machine: Machine, clock: float) -> dict[str, Forecast]:
    """By the name of each layer's value; empty where the planner has no price. ``clock``: cycles a second."""
    shapes = spec.infer_shapes(plan.shapes)
    single = one_image(spec, shapes)
    first = shapes[spec.inputs[0].name]
    if single is None or not first:
        return {}
    batch = first[0]
    layers = fuse(spec)
    constants = {layer.name for layer in layers if layer.node.op == "constant"}
    stacked = {n for step in plan.steps if step.stack is not None for n in step.layers}
    in_l3 = weights_stay_in_l3(spec, machine)
    found = {}
    for layer in layers:
        if layer.name in constants:
            continue
        cost = price(layer, spec, single, machine, batch, in_l3)
        apart, together = cost.apart / clock, cost.together / clock
        inside = layer.name in stacked
        prices = f"{apart * 1e6:,.0f} µs image by image, {together * 1e6:,.0f} µs all images at once"
        if inside:
            why = f"in a stack: predicted {prices}"
        elif batch < max(2, machine.threads):
            why = "" if batch == 1 else "no stacks: fewer images than threads"
        elif not stackable(layer, shapes, single, batch, constants):
            why = "not in a stack: it cannot be computed image by image"
        else:
            why = f"not in a stack: predicted {prices}, changing over not counted"
        found[layer.name] = Forecast(apart if inside else together, why)
    return found
