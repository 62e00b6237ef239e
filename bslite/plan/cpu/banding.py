"""Depth-first execution within an image: the choice of runs of layers that go band of rows by band of rows.

It is for batches too small to give every thread an image, and for images too large for the L2 of their
thread. Values between the layers of a run exist for one band at a time, in the L2 of the thread that works on
it. The price: rows that two bands both need are computed twice, and the weights are read once per band. A
dynamic programme over the layers chooses runs and numbers of bands.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from bslite.machine import Machine
from bslite.ops import Kind, RowMap, Shape
from bslite.passes import Layer
from bslite.plan.core.bands import Crop, can_band, crop, row_map, share
from bslite.plan.core.views import size_of
from bslite.plan.cpu.tiling import UNEVEN
from bslite.plan.cpu.tuning import Banding
from bslite.spec import ModelSpec

Shapes = Mapping[str, Shape]
ITEMS = 4  # of a step for each thread, by default
STEP = 250.0  # cycles to start a layer on a band
#: Cycles of an activation per vector register, where it costs more than a clamp.
ACTIVATION = {
    "silu": 8.0,
    "gelu": 14.0,
    "tanh": 14.0,
    "sigmoid": 8.0,
    "elu": 8.0,
    "hardswish": 2.0,
    "quantize": 8.0,
}
WRITE = 2.0  # memory beyond L2 is read before it is written
ROOM = 0.7  # share of L2 that a band may fill
NEAR = 0.25  # share of L2 up to which the thread that made a value's rows still finds them there


class Cost(NamedTuple):
    """The cost of one layer for one image: cycles of one core out of L1, and bytes."""

    work: float
    taken: float
    made: float
    weights: float


class Run(NamedTuple):
    """Layers ``[start, stop)`` in ``bands`` bands, and the predicted cycles."""

    start: int
    stop: int
    bands: int
    cycles: float


def layer_cost(layer: Layer, spec: ModelSpec, shapes: Shapes, machine: Machine) -> Cost:
    """The cost of a layer for an image of these shapes."""
    node, out = layer.node, shapes[layer.name]
    params = spec.param_shapes(node)
    pixels = size_of(out) / max(1, out[1]) if len(out) > 1 else 1.0
    vectors = pixels * -(-out[1] // machine.lanes) if len(out) > 1 else 1.0
    kind = node.declaration.kind
    if node.op == "conv2d" and node.attrs["groups"] == 1:
        k, c, r, s = params["weight"]
        work = pixels * c * r * s * -(-k // machine.lanes) / machine.fma_ports * 1.1
    elif node.op == "conv2d" and params["weight"][1] == 1:
        work = vectors * size_of(params["weight"][2:]) / machine.fma_ports * 1.6
    elif kind is Kind.CONTRACTION:
        flops = node.declaration.flops(
            [shapes[n] for n in node.inputs], shapes[node.name], params, node.attrs
        )
        work = flops / (2.0 * machine.lanes * machine.fma_ports) * 1.3
    elif kind is Kind.WINDOW:
        maps = row_map(node, params)
        work = vectors * (maps.extent**2 if maps else 1.0) * 0.75 + 4 * vectors
    elif kind is Kind.MOVEMENT:
        work = vectors
    else:
        work = vectors * (2.0 + ACTIVATION.get(node.op, 1.0))
    if layer.activation is not None:
        work += vectors * ACTIVATION.get(layer.activation.op, 0.0)
    taken = 4.0 * sum(size_of(shapes[name]) for name in layer.inputs)
    return Cost(work, taken, 4.0 * size_of(out), 4.0 * sum(map(size_of, params.values())))


def whole_cycles(cost: Cost, machine: Machine, images: int, options: Banding) -> float:
    """The cycles of a layer run on its own, its rows or channels shared among the threads."""
    t = machine.threads
    near, far = 1 / machine.l2_bytes_per_cycle, 1 / machine.l3_bytes_per_cycle
    read = near if images * cost.taken / t < NEAR * machine.l2 else far
    write = near if images * cost.made / t < NEAR * machine.l2 else WRITE * far
    weights = cost.weights * far / t
    uneven = UNEVEN / ITEMS if t > 1 else 0.0
    moved = cost.taken * read + cost.made * write
    return images * (cost.work + moved) / t * (1.0 + uneven) + weights + options.sync


def run_cycles(
    layers: Sequence[Layer],
    costs: Sequence[Cost],
    cut: Crop,
    shapes: Shapes,
    leaving: Sequence[str],
    machine: Machine,
    images: int,
    bands: int,
    options: Banding,
) -> float:
    """The cycles of a run taken band by band, where every band costs as much as ``cut``."""
    near, far = 1 / machine.l2_bytes_per_cycle, 1 / machine.l3_bytes_per_cycle

    def part(name: str) -> float:
        first, last = cut.rows[name]
        return (last - first) / shapes[name][2]

    def size(name: str) -> float:
        return 4.0 * size_of(shapes[name])

    def bands_share(name: str) -> float:
        return -(-shapes[name][2] // bands) / shapes[name][2]

    made = {layer.name for layer in layers}
    last_read = {name: i for i, layer in enumerate(layers) for name in layer.inputs}
    alive, most, moved, work = 0.0, 0.0, 0.0, 0.0
    weights = sum(c.weights for c in costs)
    for i, (layer, cost) in enumerate(zip(layers, costs, strict=True)):
        if layer.name not in cut.rows:
            return float("inf")  # no layer reads it
        mine = part(layer.name)
        work += cost.work * mine + STEP
        moved += cost.made * mine + sum(part(n) * size(n) for n in layer.inputs)
        alive += cost.made * mine
        most = max(most, alive)
        for name in dict.fromkeys(layer.inputs):
            if name in made and last_read[name] == i:
                alive -= part(name) * size(name)
    spilt = max(0.0, 1.0 - ROOM * machine.l2 / most) if most else 0.0
    cycles = work + moved * (near + spilt * 1.5 * far)
    share = images / machine.threads
    for name in dict.fromkeys(n for layer in layers for n in layer.inputs if n not in made):
        cycles += part(name) * size(name) * (near if size(name) * share < NEAR * machine.l2 else far)
    for name in leaving:
        if part(name) > bands_share(name):
            cycles += 2 * part(name) * size(name) * near  # copied out: it may not write other bands' rows
        cycles += part(name) * size(name) * (near if size(name) * share < NEAR * machine.l2 else WRITE * far)
    rounds = -(-images * bands // machine.threads)
    again = near if weights + most < ROOM * machine.l2 else far
    uneven = UNEVEN * cycles if machine.threads > 1 else 0.0
    return rounds * cycles + uneven + weights * (far + (rounds - 1) * again) + options.sync


def choose_bands(
    layers: Sequence[Layer],
    spec: ModelSpec,
    shapes: Shapes,
    machine: Machine,
    images: int,
    apart: Container[int],
    outputs: Iterable[str],
    options: Banding,
) -> list[Run]:
    """Disjoint runs of layers to take band by band, the cheapest by predicted cycles.

    ``shapes``: of one image. ``apart``: numbers of the layers that can be computed image by image;
    ``outputs``: the values needed after all layers.
    """
    costs = [layer_cost(layer, spec, shapes, machine) for layer in layers]
    able = [
        i in apart and can_band(layer, spec, shapes) and layer.node.op != "constant"
        for i, layer in enumerate(layers)
    ]
    maps = {
        layer.name: row_map(layer.node, spec.param_shapes(layer.node)) or RowMap()
        for layer, ok in zip(layers, able, strict=True)
        if ok
    }
    read_by: dict[str, int] = {name: i for i, layer in enumerate(layers) for name in layer.inputs}
    read_by |= dict.fromkeys(outputs, len(layers))
    best: list[float] = [0.0]
    chosen: list[Run | None] = []
    endings: dict[int, list[Run]] = {}
    for start in range(len(layers)):
        if able[start] and costs[start].taken + costs[start].made >= options.worth * machine.threads / images:
            for run in _runs_from(
                start, layers, costs, able, maps, spec, shapes, machine, images, read_by, options
            ):
                endings.setdefault(run.stop, []).append(run)
    for stop in range(1, len(layers) + 1):
        cycles = best[-1] + whole_cycles(costs[stop - 1], machine, images, options)
        pick = None
        for run in endings.get(stop, ()):
            if best[run.start] + run.cycles < cycles:
                cycles, pick = best[run.start] + run.cycles, run
        best.append(cycles)
        chosen.append(pick)
    found: list[Run] = []
    stop = len(layers)
    while stop > 0:
        pick = chosen[stop - 1]
        if pick is not None:
            found.append(pick)
        stop = pick.start if pick is not None else stop - 1
    return found[::-1]


def _largest(height: int, bands: int) -> int:
    """The number of the band with the most rows, if possible one with neighbours on both sides."""
    inner = range(1, bands - 1) or range(bands)
    return max(inner, key=lambda band: share(height, band, bands)[1] - share(height, band, bands)[0])


def _runs_from(
    start: int,
    layers: Sequence[Layer],
    costs: Sequence[Cost],
    able: Sequence[bool],
    maps: Mapping[str, RowMap],
    spec: ModelSpec,
    shapes: Shapes,
    machine: Machine,
    images: int,
    read_by: Mapping[str, int],
    options: Banding,
) -> list[Run]:
    """The best number of bands for each run that starts at layer ``start``."""
    found = []
    made: set[str] = set()
    for stop in range(start + 1, min(len(layers), start + options.longest) + 1):
        layer = layers[stop - 1]
        if not able[stop - 1]:
            break
        if layer.node.op == "concat" and not set(layer.inputs) <= made:
            break  # it would be a copy; outside the run it is free
        made.add(layer.name)
        run = layers[start:stop]
        leaving = [other.name for other in run if read_by.get(other.name, -1) >= stop]
        if stop - start < 2 or not leaving:
            continue
        most = min(shapes[name][2] for name in leaving)
        best: Run | None = None
        for rounds in options.rounds:
            bands = rounds * machine.threads
            if bands == 1:
                continue  # an image in one piece
            if bands > most:
                break
            cut = crop(run, maps, shapes, leaving, {}, _largest(shapes[leaving[-1]][2], bands), bands)
            cycles = run_cycles(run, costs[start:stop], cut, shapes, leaving, machine, images, bands, options)
            if best is None or cycles < best.cycles:
                best = Run(start, stop, bands, cycles)
        if best is not None:
            found.append(best)
    return found
