"""The time that the planner predicts for each layer, and why the layer is in a stack or out of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bslite.machine import Machine
from bslite.passes import Layer, fuse
from bslite.passes.layouts import channels_second
from bslite.plan.core.bands import can_band
from bslite.plan.cpu.banding import layer_cost, whole_cycles
from bslite.plan.cpu.phases import Images, Prices, images_of
from bslite.plan.cpu.stacks import (
    UNBANDED,
    batch_of,
    kept_by_bands,
    one_image,
    price,
    stackable,
    weights_stay_in_l3,
)
from bslite.plan.cpu.step import CpuPlan
from bslite.plan.cpu.tuning import Banding
from bslite.spec import ModelSpec


@dataclass(frozen=True)
class Forecast:
    """``seconds`` the planner's price says, for the way the layer is run; ``why`` it is run that way."""

    seconds: float
    why: str


def forecasts(spec: ModelSpec, plan: CpuPlan, machine: Machine, clock: float) -> dict[str, Forecast]:
    """By the name of each layer's value; empty where the planner has no price. ``clock``: cycles a second."""
    shapes = spec.infer_shapes(plan.shapes)
    layers = fuse(spec)
    images = images_of(layers, spec, shapes, machine.threads)
    if images is not None:
        return _by_phases(layers, images, plan, machine, clock)
    single = one_image(spec, shapes)
    if single is None or not shapes[spec.inputs[0].name]:
        return {}
    batch = batch_of(spec, shapes)
    constants = {layer.name for layer in layers if layer.node.op == "constant"}
    deep = [step for step in plan.steps if step.inner is not None]
    within = {n: len(step.bands) for step in deep if not step.tiled for n in step.layers}
    tiled = {n: step.items for step in deep if step.tiled for n in step.layers}
    in_l3 = weights_stay_in_l3(spec, machine)
    by_bands = batch < max(2, machine.threads)
    second = channels_second(spec, shapes)
    banded = UNBANDED
    if not by_bands:
        banded, _ = kept_by_bands(layers, spec, shapes, single, second, machine, Banding())
    found = {}
    for layer in layers:
        if layer.name in constants:
            continue
        if by_bands or within.get(layer.name, 1) > 1:
            seconds = (
                whole_cycles(layer_cost(layer, spec, single, machine), machine, batch, Banding()) / clock
            )
            able = can_band(layer, spec, single, second)
            found[layer.name] = Forecast(seconds, _why_banded(able, within.get(layer.name), seconds))
            continue
        cost = price(layer, spec, single, machine, batch, in_l3, banded)
        apart, together = cost.apart / clock, cost.together / clock
        inside = layer.name in within
        prices = f"{apart * 1e6:,.0f} µs image by image, {together * 1e6:,.0f} µs all images at once"
        if inside:
            why = f"in a stack: predicted {prices}"
        elif not stackable(layer, shapes, single, batch, constants, spec.dtypes):
            why = "not in a stack: it cannot be computed image by image"
        else:
            why = f"not in a stack: predicted {prices}, changing over not counted"
        found[layer.name] = Forecast(apart if inside else together, why)
    for name in found.keys() & tiled.keys():
        found[name] = replace(
            found[name], why=f"in a chain: {tiled[name]} tiles go through all of its layers"
        )
    return found


def _by_phases(
    layers: Sequence[Layer], images: Images, plan: CpuPlan, machine: Machine, clock: float
) -> dict[str, Forecast]:
    """Of a model whose layers take images apart between two sums over all of them."""
    prices = Prices(layers, images, machine, {}, ())
    inside = {n for step in plan.steps if step.inner is not None and not step.tiled for n in step.layers}
    found = {}
    for i, layer in enumerate(layers):
        if layer.node.op == "constant":
            continue
        seconds = prices.together(i) / (machine.threads * clock)
        alone = f"on its own it is predicted to take {seconds * 1e6:,.0f} µs"
        if layer.name in inside:
            why = f"in a stack, image by image between two sums over the batch; {alone}"
        elif not images.apart(layer):
            why = "not in a stack: it needs other images, or few partial sums would not do"
        else:
            why = f"not in a stack: predicted to take no less time in one; {alone}"
        found[layer.name] = Forecast(seconds, why)
    return found


def _why_banded(able: bool, bands: int | None, seconds: float) -> str:
    """Why a layer is, or is not, in a stack taken by bands, where that is a choice; ``able``: it can be."""
    alone = f"on its own it is predicted to take {seconds * 1e6:,.0f} µs"
    if bands is not None:
        return f"in a stack of {bands} bands of rows, the cheaper way; {alone}"
    if not able:
        return "not in a stack: it cannot be computed band by band of rows"
    return f"not in a stack: predicted to take no less time in one; {alone}"
