"""Depth-first execution within an image: the choice of runs of layers that go band of rows by band of rows.

It is for batches too small to give every thread an image, and for images too large for the L2 of their
thread. Values between the layers of a run exist for one band at a time, in the L2 of the thread that works on
it. The price: rows that two bands both need are computed twice, and the weights are read once per band. A
dynamic programme over the layers chooses runs and numbers of bands.
"""

import functools
import itertools
import math
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bslite.machine import Machine
from bslite.ops import Kind, RowMap, Shape
from bslite.ops.integer import cells
from bslite.passes import Layer
from bslite.passes.families import CONVS
from bslite.plan.core.bands import Rows, can_band, hull, input_rows, row_map, share
from bslite.plan.core.views import size_of
from bslite.plan.cpu.known_runs import Run
from bslite.plan.cpu.on_tiles.prologue import is_prologue
from bslite.plan.cpu.tiling import UNEVEN
from bslite.plan.cpu.tuning import Banding
from bslite.plan.cpu.work import arithmetic_cycles, parts_of
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
VIEW = "slice"  # moves nothing, unless it leaves a run of bands
WRITE = 2.0  # memory beyond L2 is read before it is written
ROOM = 0.7  # share of L2 that a band may fill
NEAR = 0.25  # share of L2 up to which the thread that made a value's rows still finds them there


class Cost(NamedTuple):
    """The cost of one layer for one image: cycles of one core out of L1, and bytes. ``cells``: the share of a
    value's bytes that is moved where neighbouring steps pass it as cells.
    """

    work: float
    taken: float
    made: float
    weights: float
    cells: float


NOTHING = Cost(0.0, 0.0, 0.0, 0.0, 1.0)  # of a layer that is another one's prologue, and of a view


def layer_cost(layer: Layer, spec: ModelSpec, shapes: Shapes, machine: Machine) -> Cost:
    """The cost of a layer for an image of these shapes."""
    node, out = layer.node, shapes[layer.name]
    params = spec.param_shapes(node)
    pixels = size_of(out) / max(1, out[1]) if len(out) > 1 else 1.0
    vectors = pixels * -(-out[1] // machine.lanes) if len(out) > 1 else 1.0
    kind = node.declaration.kind
    if node.op in ("int_conv1d", "int_conv2d"):
        k, c, *taps = params["weight"]
        terms = cells(c, node.attrs["reads"]) * math.prod(taps)
        work = pixels * terms * -(-k // machine.lanes) / machine.fma_ports * 1.1
    elif node.op in ("conv1d", "conv2d") and node.attrs["groups"] == 1:
        k, c, *taps = params["weight"]
        flops = 2.0 * pixels * c * math.prod(taps) * machine.lanes * -(-k // machine.lanes)
        work = arithmetic_cycles(flops, node, params, machine) * 1.1
    elif node.op in ("conv1d", "conv2d") and params["weight"][1] == 1:
        work = vectors * size_of(params["weight"][2:]) / machine.fma_ports * 1.6
    elif kind is Kind.CONTRACTION:
        flops = node.declaration.flops(
            [shapes[n] for n in node.inputs], shapes[node.name], params, node.attrs
        )
        work = arithmetic_cycles(flops, node, params, machine) * 1.3
    elif kind is Kind.WINDOW:
        maps = row_map(node, params)
        work = vectors * (maps.extent ** (len(out) - 2) if maps else 1.0) * 0.75 + 4 * vectors
    elif kind is Kind.MOVEMENT:
        work = vectors
    else:
        work = vectors * (2.0 + ACTIVATION.get(node.op, 1.0))
    if layer.activation is not None:
        work += vectors * ACTIVATION.get(layer.activation.op, 0.0)
    taken = 4.0 * sum(size_of(shapes[name]) for name in layer.inputs)
    parts = parts_of(node, params, machine)
    weights = (2.0 * parts or 4.0) * sum(map(size_of, params.values()))
    return Cost(work, taken, 4.0 * size_of(out), weights, 0.5 if parts == 1 else 1.0)


def whole_cycles(cost: Cost, machine: Machine, images: int, options: Banding) -> float:
    """The cycles of a layer run on its own, its rows or channels shared among the threads."""
    t = machine.threads
    near, far = 1 / machine.l2_bytes_per_cycle, 1 / machine.l3_bytes_per_cycle
    taken, made = cost.cells * cost.taken, cost.cells * cost.made
    read = near if images * taken / t < NEAR * machine.l2 else far
    write = near if images * made / t < NEAR * machine.l2 else WRITE * far
    weights = cost.weights * far / t
    uneven = UNEVEN / ITEMS if t > 1 else 0.0
    moved = taken * read + made * write
    return images * (cost.work + moved) / t * (1.0 + uneven) + weights + options.sync


class Reading:
    """What is read of a value from outside a run: the rows of it, how often, and by which layer last."""

    __slots__ = ("bytes", "count", "height", "last", "rows")

    def __init__(self, rows: Rows, shape: Shape, last: int) -> None:
        self.rows, self.height, self.bytes, self.last, self.count = (
            rows,
            shape[2],
            4.0 * size_of(shape),
            last,
            0,
        )

    @property
    def read(self) -> float:
        """Bytes of the rows."""
        return (self.rows[1] - self.rows[0]) / self.height * self.bytes


class Growing:
    """The predicted cycles of runs that end before layer ``stop``, in ``bands`` bands of rows.

    A run grows at its front: what later layers need of a value does not depend on the layers before, so that
    one more layer costs little. Every band costs as much as the largest.
    """

    def __init__(self, search: "Search", stop: int, bands: int) -> None:
        self.search, self.stop, self.bands = search, stop, bands
        machine, options = search.machine, search.options
        self.rounds = -(-search.images * bands // machine.threads)
        self.near, self.far = 1 / machine.l2_bytes_per_cycle, 1 / machine.l3_bytes_per_cycle
        self.uneven = UNEVEN if machine.threads > 1 else 0.0
        self.stays = NEAR * machine.l2 * machine.threads / search.images  # bytes of a value that stay near
        self.sync = options.sync
        height = search.shapes[search.layers[stop - 1].name][2]
        self.band = _largest(height, bands)
        first, last = share(height, self.band, bands)
        self.even = height / (bands * (last - first))  # the mean band as a share of the largest
        self.outside: dict[str, Reading] = {}
        self.alive: list[float] = []  # bytes, from the last layer to the first
        self.most = self.work = self.moved = self.weights = self.written = 0.0

    def grow(self, i: int) -> bool:
        """Put layer ``i`` in front of the run; False if nothing reads its value."""
        search = self.search
        layer, cost = search.layers[i], search.costs[i]
        height = search.shapes[layer.name][2]
        reading = self.outside.pop(layer.name, None)
        rows, last, count = (
            (reading.rows, reading.last, reading.count) if reading else (None, self.stop - 1, 0)
        )
        leaves = search.read_by.get(layer.name, -1) >= self.stop
        if (search.joins[i] or layer.node.op == VIEW) and not leaves:
            cost = NOTHING
        if leaves:
            rows = hull(rows, share(height, self.band, self.bands))
        if rows is None:
            return False
        part = (rows[1] - rows[0]) / height
        made = part * cost.made
        self.work += cost.work * part + STEP
        self.moved += cost.cells * made * (1 + count)
        self.weights += cost.weights
        if leaves:
            if part > -(-height // self.bands) / height:
                self.written += 2 * made * self.near  # copied out: it may not write other bands' rows
            self.written += made * (self.near if cost.made < self.stays else WRITE * self.far)
            if layer.name in search.turned:
                self.written += made * (1 + WRITE) * self.far
        self.alive.append(0.0)
        for place in range(self.stop - 1 - last, len(self.alive)):
            self.alive[place] += cost.cells * made
            self.most = max(self.most, self.alive[place])
        node, maps = layer.node, search.maps[layer.name]
        for name in layer.inputs:
            shape = search.shapes[name]
            read = None
            if name in node.inputs:
                read = input_rows(rows, maps, height, shape[2])
            if name == layer.residual:
                read = hull(read, rows)
            assert read is not None
            if name in self.outside:
                self.outside[name].rows = hull(self.outside[name].rows, read)
            else:
                self.outside[name] = Reading(read, shape, i)
            self.outside[name].count += 1
        return True

    def cycles(self) -> tuple[float, float]:
        """The cycles of the run as it is now, and a number that more bands do not get below."""
        machine = self.search.machine
        moved, taken = self.moved, 0.0
        for reading in self.outside.values():
            read = reading.read
            moved += reading.count * read
            taken += read * (self.near if reading.bytes < self.stays else self.far)
        spilt = max(0.0, 1.0 - ROOM * machine.l2 / self.most) if self.most else 0.0
        cycles = self.work + moved * (self.near + spilt * 1.5 * self.far) + taken + self.written
        again = self.near if self.weights + self.most < ROOM * machine.l2 else self.far
        weights, more = self.weights * self.far + self.sync, self.weights * (self.rounds - 1)
        total = (self.rounds + self.uneven) * cycles + weights + more * again
        return total, 0.0 if spilt else self.even * self.rounds * cycles + weights + more * self.near


@dataclass(frozen=True)
class Search:
    """What the search for runs knows of the layers. ``read_by``: the last layer that reads a value.
    ``joins``: whether a layer is the prologue of the next one. ``turned``: results of the model that a
    layer on its own turns in its store (`turn_in_store`); one that leaves a run is turned by a copy.
    """

    layers: Sequence[Layer]
    costs: Sequence[Cost]
    joins: Sequence[bool]
    able: Sequence[bool]
    maps: Mapping[str, RowMap]
    shapes: Shapes
    machine: Machine
    images: int
    read_by: Mapping[str, int]
    turned: Container[str]
    options: Banding

    def worth(self, start: int) -> bool:
        """Whether a run may begin at a layer: its memory traffic matters."""
        cost = self.costs[start]
        return cost.taken + cost.made >= self.options.worth * self.machine.threads / self.images

    def starts(self, stop: int) -> list[int]:
        """The layers at which runs that end before ``stop`` may begin, the last first."""
        found: list[int] = []
        index = {self.layers[i].name: i for i in range(max(0, stop - self.options.longest), stop)}
        need = stop
        for start in range(stop - 1, max(0, stop - self.options.longest) - 1, -1):
            layer = self.layers[start]
            if not self.able[start]:
                break
            if layer.node.op == "concat":  # it would be a copy; outside the run it is free
                need = min([need, *(index.get(name, -1) for name in layer.inputs)])
            if start > 0 and self.joins[start - 1]:
                continue
            if start <= need and stop - start >= 2 and self.worth(start):
                found.append(start)
        return found

    def runs(self, stop: int, starts: Sequence[int]) -> list[Run]:
        """The best number of bands for each run from one of ``starts`` (the last first) until ``stop``."""
        waiting = list(starts)
        best: dict[int, Run] = {}
        each = self.machine.threads if self.images < self.machine.threads else 1
        for rounds in self.options.rounds:
            bands = rounds * each
            if not waiting:
                break
            height = self.shapes[self.layers[stop - 1].name][2]
            if bands == 1 or bands > height:
                continue  # an image in one piece; a band has a row at least
            growing, rows, still = Growing(self, stop, bands), height, []
            for i in range(stop - 1, waiting[-1] - 1, -1):
                name = self.layers[i].name
                if self.read_by.get(name, -1) >= stop:
                    rows = self.shapes[name][2]
                if bands > rows or not growing.grow(i):
                    break
                if i not in waiting:
                    continue
                cycles, least = growing.cycles()
                if i not in best or cycles < best[i].cycles:
                    best[i] = Run(i, stop, bands, cycles)
                if best[i].cycles > least:
                    still.append(i)
            waiting = still
        return list(best.values())


def choose_bands(
    layers: Sequence[Layer],
    spec: ModelSpec,
    shapes: Shapes,
    second: Collection[str],
    machine: Machine,
    images: int,
    apart: Container[int],
    outputs: Iterable[str],
    options: Banding,
    among: Sequence[Run] | None = None,
) -> list[Run]:
    """Disjoint runs of layers to take band by band, the cheapest by predicted cycles.

    ``shapes``: of one image; ``second``: values whose channels are axis 1. ``apart``: numbers of the layers
    that can be computed image by image; ``outputs``: the values needed after all layers. ``among``: the runs
    to choose from, in as many bands as are best here; all if not given.
    """
    costs = [layer_cost(layer, spec, shapes, machine) for layer in layers]
    able = [
        i in apart and can_band(layer, spec, shapes, second) and layer.node.op != "constant"
        for i, layer in enumerate(layers)
    ]
    maps = {
        layer.name: row_map(layer.node, spec.param_shapes(layer.node)) or RowMap()
        for layer, ok in zip(layers, able, strict=True)
        if ok
    }
    read_by: dict[str, int] = {name: i for i, layer in enumerate(layers) for name in layer.inputs}
    read_by |= dict.fromkeys(outputs, len(layers))
    pairs = itertools.pairwise(layers)
    joins = [*(is_prologue(layer, then, spec, shapes, machine) for layer, then in pairs), False]
    turned = {n.name for n in layers if n.node.op in CONVS and n.name in second and n.name in spec.outputs}
    search = Search(layers, costs, joins, able, maps, shapes, machine, images, read_by, turned, options)
    given: dict[int, set[int]] = {}
    for run in among or ():
        if all(able[run.start : run.stop]):
            given.setdefault(run.stop, set()).add(run.start)
    best: list[float] = [0.0]
    chosen: list[Run | None] = []
    for stop in range(1, len(layers) + 1):
        free = joins[stop - 1] or layers[stop - 1].node.op == VIEW
        alone = 0.0 if free else whole_cycles(costs[stop - 1], machine, images, options)
        cycles = best[-1] + alone
        pick = None
        starts = search.starts(stop) if among is None else sorted(given.get(stop, ()), reverse=True)
        for run in search.runs(stop, starts):
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


@functools.lru_cache(4096)
def _largest(height: int, bands: int) -> int:
    """The number of the band with the most rows, if possible one with neighbours on both sides."""
    inner = range(1, bands - 1) or range(bands)
    return max(inner, key=lambda band: share(height, band, bands)[1] - share(height, band, bands)[0])
