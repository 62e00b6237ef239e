"""Depth-first execution over images: the layers that a thread runs on one image before the next one.

The idea is BrainSlug's (arXiv 1804.08378), with the whole image as the tile: values between the layers of a
stack have a place per thread, not per image, so they stay in that core's cache, memory falls by batch over
threads, and no thread waits at a layer's end. The price: weights are read once per image, not per batch.
"""

import dataclasses
import itertools
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from bslite.errors import BsliteError
from bslite.machine import Machine
from bslite.ops import Shape
from bslite.passes import Layer
from bslite.plan.core.concats import VIEW_OPS
from bslite.plan.core.views import size_of
from bslite.plan.cpu.banding import STEP, choose_bands
from bslite.plan.cpu.known_runs import KnownRuns, Run, fit
from bslite.plan.cpu.tuning import Banding
from bslite.plan.cpu.work import arithmetic_cycles
from bslite.spec import ModelSpec

Shapes = Mapping[str, Shape]
FREE = ("slice", "permute")  # views, which move nothing; a reshape may be a copy
PART = 50.0  # cycles for each further part of a concatenation
EXPOSED = 0.6  # share of the time for weights from beyond L2 that prefetching does not hide
#: Cycles by which threads must shorten a run: for one that a team may join, which does not hold it up where
#: its members sleep; for a parallel region, which takes 5 us where threads still spin from the last call, 70
#: where they sleep, milliseconds where cores are busy; and for each layer.
JOINING, WAKING, MEETING = 25_000.0, 100_000.0, 500.0


class Price(NamedTuple):
    """Predicted cycles of one layer for the whole batch, image by image or all images at once."""

    apart: float
    together: float


class Banded(NamedTuple):
    """The values that do not leave runs of layers taken band by band: where one thread takes an image through
    all layers, and where all threads take all images through a run. An estimate: where stacks begin and end,
    runs may be others.
    """

    apart: frozenset[str]
    together: frozenset[str]


UNBANDED = Banded(frozenset(), frozenset())


def one_image(spec: ModelSpec, shapes: Shapes) -> dict[str, Shape] | None:
    """Shapes of all values for a single image, or None if the batch is not a free axis 0 of every input."""
    try:
        return spec.infer_shapes([(1, *shapes[i.name][1:]) for i in spec.inputs])
    except BsliteError:
        return None


def stackable(
    layer: Layer, shapes: Shapes, single: Shapes, batch: int, constants: set[str], dtypes: Mapping[str, str]
) -> bool:
    """Whether the layer can be computed image by image."""
    nodes = [n for n in (layer.node, layer.affine, layer.activation) if n is not None]
    if any(n.declaration.sums_images or n.declaration.share(len(n.inputs)) for n in nodes):
        return False  # see `phases`
    inputs = [name for name in layer.inputs if name not in constants]
    integers = any(dtypes[name] not in ("float32", "bool") for name in (*layer.inputs, layer.name))
    if integers and any(n.declaration.may_fail for n in nodes):
        return False  # its flag is outside
    for value in (*inputs, layer.name):
        if not shapes[value] or shapes[value][0] != batch or single[value] != (1, *shapes[value][1:]):
            return False
    ranks = [len(shapes[name]) for name in inputs]
    if not ranks:
        return False  # constants alone: computed once for all images
    if len(inputs) < len(layer.inputs) and any(len(shapes[n]) > ranks[0] for n in layer.inputs):
        return False
    return all(n.declaration.keeps_images_apart(ranks, n.attrs) for n in nodes)


def price(
    layer: Layer, spec: ModelSpec, single: Shapes, machine: Machine, batch: int, in_l3: bool,
    banded: Banded = UNBANDED,
) -> Price:  # fmt: skip
    """The layer's cost both ways: arithmetic or traffic from beyond L2, whichever takes longer, and for each
    image the beginning of the layer.

    Weights re-read for every image come from L2 if they stay there, else from L3 if all of the model's
    weights do (``in_l3``). Values inside the runs ``banded`` stay in L2.
    """
    if layer.node.op in FREE:
        return Price(0.0, 0.0)
    node, t = layer.node, machine.threads
    params = spec.param_shapes(node)
    ins = [single[n] for n in node.inputs]
    flops = node.declaration.flops(ins, single[node.name], params, node.attrs)
    compute = arithmetic_cycles(flops, node, params, machine)
    weights = 4.0 * sum(map(size_of, params.values()))
    values = [(name, 4.0 * size_of(single[name])) for name in (*layer.inputs, layer.name)]
    image = sum(size for _, size in values)

    def moved(stays: Container[str], beyond: float) -> float:
        near = sum(size for name, size in values if name in stays)
        return near / machine.l2_bytes_per_cycle + (image - near) / beyond

    rounds = -(-batch // t)
    weight_speed = machine.l3_bytes_per_cycle if in_l3 else machine.memory_bytes_per_cycle
    if weights < machine.l2 / 2:
        weight_speed = machine.l2_bytes_per_cycle
    image_speed = machine.l2_bytes_per_cycle if image < machine.l2 / 2 else machine.l3_bytes_per_cycle
    read = weights / weight_speed
    apart = rounds * (
        max(compute + EXPOSED * read, read) + moved(banded.apart, image_speed) + _starting(layer)
    )
    beyond = machine.l3_bytes_per_cycle if batch * image < machine.l3 / 2 else machine.memory_bytes_per_cycle
    if batch * image < t * machine.l2 / 4:  # there is room for what lies between
        beyond = machine.l2_bytes_per_cycle
    # With an image for each thread, threads that all read all weights take as long as one would. Where these
    # are most of the time, reading a part each is worth more than images that stay in cache.
    shared = in_l3 and rounds == 1 and weights / machine.l3_bytes_per_cycle > batch * compute
    beyond_l2 = machine.l3_bytes_per_cycle if shared else machine.memory_bytes_per_cycle
    together = batch * (compute + moved(banded.together, beyond)) / t + weights / (t * beyond_l2)
    return Price(apart, together)


def _starting(layer: Layer) -> float:
    """Cycles to start a layer on an image."""
    if layer.node.op in VIEW_OPS:
        return 0.0
    return STEP + PART * (len(layer.inputs) - 1 if layer.node.op == "concat" else 0)


def weights_stay_in_l3(spec: ModelSpec, machine: Machine) -> bool:
    """Whether all of the model's parameters fit L3, with room for the data they work on."""
    return 4.0 * sum(p.size for p in spec.params.values()) < 0.7 * machine.l3


def threads_worth(
    layers: Sequence[Layer], spec: ModelSpec, shapes: Shapes, machine: Machine
) -> tuple[int, int]:
    """The threads of a run that a team may join, and of one in a parallel region: all, or 1 where they do not
    shorten it enough, its weights being in cache.
    """
    if machine.threads == 1:
        return 1, 1
    alone = dataclasses.replace(machine, threads=1)
    in_l3 = weights_stay_in_l3(spec, machine)
    share = 1.0 - 1.0 / machine.threads
    saved = -MEETING * len(layers)
    for layer in layers:
        saved += share * (price(layer, spec, shapes, alone, 1, in_l3).apart - _starting(layer))
        if saved > WAKING:
            break
    joined, in_region = (machine.threads if saved > enough else 1 for enough in (JOINING, WAKING))
    return joined, in_region


def elements_alive(layers: Sequence[Layer], spec: ModelSpec, single: Shapes) -> list[int]:
    """For each layer, the elements per image that exist before it and are read by it or later."""
    last = {name: i for i, layer in enumerate(layers) for name in layer.inputs}
    last |= dict.fromkeys(spec.outputs, len(layers))
    made = {i.name: -1 for i in spec.inputs} | {layer.name: i for i, layer in enumerate(layers)}
    change = [0] * (len(layers) + 2)
    for name, when in made.items():
        if name in last:
            change[when + 1] += size_of(single[name])
            change[last[name] + 1] -= size_of(single[name])
    return list(itertools.accumulate(change))[: len(layers)]


class Stack(NamedTuple):
    """Layers ``[start, stop)``, taken through in ``bands`` bands of rows of each image."""

    start: int
    stop: int
    bands: int = 1

    def leaving(self, layers: Sequence[Layer], outputs: Iterable[str]) -> list[str]:
        """The values made here and needed after, in order; ``outputs`` are needed after all layers.

        Constants do not leave: they exist for all images from the start. Sums over images exist behind it.
        """
        needed = {name for layer in layers[self.stop :] for name in layer.inputs} | set(outputs)
        mine = layers[self.start : self.stop]
        return [layer.name for layer in mine if layer.name in needed and not _is_whole(layer)]


def shown(layers: Sequence[Layer], stacks: Sequence[Stack], outputs: Iterable[str]) -> list[Layer]:
    """The layers whose values exist outside the stacks."""
    inside = {i for stack in stacks for i in range(stack.start, stack.stop)}
    leaving = {name for stack in stacks for name in stack.leaving(layers, outputs)}
    outside = {layer.name for i, layer in enumerate(layers) if i not in inside}
    return [x for x in layers if x.name in outside or x.name in leaving or _is_whole(x)]


def _is_whole(layer: Layer) -> bool:
    """Whether a layer in a stack makes one value for all images."""
    return layer.node.op == "constant" or layer.node.declaration.sums_images


def choose_stacks(
    layers: Sequence[Layer], spec: ModelSpec, shapes: Shapes, second: Collection[str], machine: Machine,
    banding: Banding, known: KnownRuns | None = None,
) -> list[Stack]:  # fmt: skip
    """Disjoint runs of layers to take depth-first, the cheapest by predicted cycles, in order.

    Where each thread has an image, runs go image by image; else, and outside those runs, by bands of rows.
    ``second``: values whose channels are axis 1; ``known``: bands found for other sizes.
    """
    batch = batch_of(spec, shapes)
    single = one_image(spec, shapes)
    if single is None:
        return []
    if batch < max(2, machine.threads):
        runs = _by_bands(layers, spec, shapes, single, second, machine, batch, banding, known)
        return [Stack(run.start, run.stop, run.bands) for run in runs]
    banded, together = kept_by_bands(layers, spec, shapes, single, second, machine, banding, known)
    stacks = _by_image(layers, spec, shapes, single, machine, batch, banded)
    inside = {i for stack in stacks for i in range(stack.start, stack.stop)}
    outside = set(range(len(layers))) - inside  # of which `together` has what may go by bands
    runs = choose_bands(
        layers, spec, single, second, machine, batch, outside, spec.outputs, banding, together
    )
    return sorted([*stacks, *(Stack(run.start, run.stop, run.bands) for run in runs)])


def batch_of(spec: ModelSpec, shapes: Shapes) -> int:
    """The images of a model's first input."""
    first = shapes[spec.inputs[0].name]
    return first[0] if first else 1


def _by_bands(
    layers: Sequence[Layer], spec: ModelSpec, shapes: Shapes, single: Shapes, second: Collection[str],
    machine: Machine, images: int, banding: Banding, known: KnownRuns | None,
) -> list[Run]:  # fmt: skip
    """Runs that all threads of the machine take ``images`` images through, band by band of rows."""
    constants = {layer.name for layer in layers if layer.node.op == "constant"}

    def apart(i: int) -> bool:
        return stackable(layers[i], shapes, single, batch_of(spec, shapes), constants, spec.dtypes)

    unit = machine.tile_cycles, machine.tile_products
    key = tuple(layer.name for layer in layers), len(spec.inputs), images, machine.threads, unit, banding
    sizes = [single[i.name] for i in spec.inputs]
    runs = known.near(key, sizes) if known else None
    if runs is None or not fit(runs, layers, spec, single, second, apart):
        able = set(filter(apart, range(len(layers))))
        among = known.among(key, sizes) if known else None
        runs = choose_bands(layers, spec, single, second, machine, images, able, spec.outputs, banding, among)
        if known:
            known.note(key, sizes, runs, among)
    return runs


def kept_by_bands(
    layers: Sequence[Layer], spec: ModelSpec, shapes: Shapes, single: Shapes, second: Collection[str],
    machine: Machine, banding: Banding, known: KnownRuns | None = None,
) -> tuple[Banded, list[Run]]:  # fmt: skip
    """What stays in L2 where runs go by bands, and the runs of all images on all threads."""
    alone = dataclasses.replace(machine, threads=1)
    apart = _by_bands(layers, spec, shapes, single, second, alone, 1, banding, known)
    images = batch_of(spec, shapes)
    together = _by_bands(layers, spec, shapes, single, second, machine, images, banding, known)
    return Banded(*(_kept(layers, runs, spec.outputs) for runs in (apart, together))), together


def _kept(layers: Sequence[Layer], runs: Sequence[Run], outputs: Iterable[str]) -> frozenset[str]:
    """The values made in the runs and not needed after."""
    stacks = [Stack(run.start, run.stop, run.bands) for run in runs]
    made = {layer.name for stack in stacks for layer in layers[stack.start : stack.stop]}
    return frozenset(made.difference(*(stack.leaving(layers, outputs) for stack in stacks)))


def _by_image(
    layers: Sequence[Layer], spec: ModelSpec, shapes: Shapes, single: Shapes, machine: Machine, batch: int,
    banded: Banded,
) -> list[Stack]:  # fmt: skip
    """Runs to take image by image.

    They come from a dynamic programme over the layers in order, with two states. A change of state costs
    writing and reading all values that are alive there.
    """
    in_l3 = weights_stay_in_l3(spec, machine)
    constants = {layer.name for layer in layers if layer.node.op == "constant"}
    infinite = float("inf")
    # best[state] = (cost so far, decisions so far); state 1 is inside a stack
    best: list[tuple[float, list[bool]]] = [(0.0, []), (infinite, [])]
    alive = elements_alive(layers, spec, single)
    for i, layer in enumerate(layers):
        if layer.name in constants or stackable(layer, shapes, single, batch, constants, spec.dtypes):
            cost = (
                Price(0.0, 0.0)
                if layer.name in constants
                else price(layer, spec, single, machine, batch, in_l3, banded)
            )
        else:
            cost = Price(infinite, 0.0)
        crossing = 8.0 * batch * alive[i] / (machine.threads * machine.l3_bytes_per_cycle)
        outside, inside = best
        stay_out = min(outside, (inside[0] + crossing, inside[1]), key=lambda b: b[0])
        go_in = min(inside, (outside[0] + crossing, outside[1]), key=lambda b: b[0])
        best = [
            (stay_out[0] + cost.together, [*stay_out[1], False]),
            (go_in[0] + cost.apart, [*go_in[1], True]),
        ]
    decisions = min(best, key=lambda b: b[0])[1]
    runs: list[Stack] = []
    for start, inside_stack in enumerate(decisions):
        if inside_stack and runs and runs[-1].stop == start:
            runs[-1] = Stack(runs[-1].start, start + 1)
        elif inside_stack:
            runs.append(Stack(start, start + 1))
    return [run for run in runs if run.stop - run.start > 1]
