"""Depth-first execution of training: what a thread takes an image through between two sums over images.

In training weights are values, and a batch norm needs sums over the batch. So few layers in a row as they
stand work image by image: numbers of channels are computed between them. `in_phases` sorts layers into
phases: within one, nothing needs a sum that it makes. The gradients of a convolution are one phase: the
gradient through a batch norm, the gradients of filter and input, what the layer before makes again, and the
sums of its batch norm. `_choose_runs` says which runs of a phase are stacks. Neither looks at the number of
threads, because how a stack is cut may decide the layout, and so the bits, of what lies in it.
"""

import functools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bslite.machine import Machine
from bslite.ops import Shape, infer
from bslite.passes import Layer
from bslite.plan.core.concats import VIEW_OPS
from bslite.plan.core.views import size_of
from bslite.plan.cpu.partials import sums_apart
from bslite.plan.cpu.work import arithmetic_cycles
from bslite.spec import ModelSpec

Shapes = Mapping[str, Shape]
LONGEST = 24  # layers of a phase at most
ROOM = 0.7  # share of a cache that a run's values may fill
WRITE = 2.0  # memory is read before it is written
STEP = 300.0  # cycles to start a layer on an image


@dataclass(frozen=True)
class Images:
    """The layers of a model that can be computed image by image, for a ``batch`` of them."""

    spec: ModelSpec
    shapes: Shapes
    batch: int

    def single(self, name: str) -> Shape:
        """The shape of one image of a value."""
        return 1, *self.shapes[name][1:]

    def apart(self, layer: Layer) -> bool:
        """Whether image n of the layer's value, or its part of the sum, depends on images n alone."""
        node, op = layer.node, layer.node.declaration
        own = own_inputs(layer)
        images = [*own, *([] if op.sums_images else [layer.name])]
        if not own or op.may_fail or any(len(self.shapes[n]) < 3 for n in images):
            return False
        if not set(own).isdisjoint(shared_inputs(layer)):
            return False
        if node.op in VIEW_OPS and node.op != "slice":
            return False  # another view of a value of all images
        if any(self.shapes[n][0] != self.batch for n in images):
            return False
        ranks = [len(self.shapes[n]) for n in own]
        nodes = [n for n in (node, layer.affine, layer.activation) if n is not None]
        if not all(n.declaration.keeps_images_apart(ranks, n.attrs) for n in nodes):
            return False
        if op.sums_images:
            return sums_apart(node, self.shapes)
        ins = [self.single(n) if n in own else self.shapes[n] for n in node.inputs]
        return infer(op, ins, self.spec.param_shapes(node), node.attrs) == self.single(layer.name)


def own_inputs(layer: Layer) -> list[str]:
    """The values that a layer reads image by image."""
    shared = layer.node.declaration.share(len(layer.node.inputs))
    own = [name for i, name in enumerate(layer.node.inputs) if i not in shared]
    return own + ([layer.residual] if layer.residual is not None else [])


def shared_inputs(layer: Layer) -> list[str]:
    """The values that a layer reads whole for every image."""
    return [layer.node.inputs[i] for i in layer.node.declaration.share(len(layer.node.inputs))]


def images_of(layers: Sequence[Layer], spec: ModelSpec, shapes: Shapes, threads: int) -> Images | None:
    """The images of a model of which layers take weights that are values, or sum over images; else None, as
    where there is not one for each thread.
    """
    sizes = Counter(
        shapes[layer.node.inputs[0]][0]
        for layer in layers
        if (layer.node.declaration.share(len(layer.node.inputs)) or layer.node.declaration.sums_images)
        and len(shapes[layer.node.inputs[0]]) > 2
    )
    batch = sizes.most_common(1)[0][0] if sizes else 1
    return Images(spec, shapes, batch) if batch >= max(2, threads) else None


def in_phases(
    layers: Sequence[Layer], images: Images, machine: Machine, outputs: Collection[str]
) -> tuple[list[Layer], list[tuple[int, int]]]:
    """The layers in an order in which those that are taken image by image follow on one another, and where:
    runs ``[start, stop)``.
    """
    order: list[Layer] = []
    runs: list[tuple[int, int]] = []
    readers: dict[str, list[str]] = {}
    for layer in layers:
        for name in layer.inputs:
            readers.setdefault(name, []).append(layer.name)
    for phase in _phases(layers, images):
        prices = Prices(phase.inside, images, machine, readers, outputs)
        found = _choose_runs(prices, len(phase.inside))
        first = len(order) + len(phase.before)
        runs += [(first + start, first + stop) for start, stop in found]
        order += [*phase.before, *phase.inside, *phase.after] if found else phase.layers
    return order, runs


@dataclass
class _Phase:
    """``layers`` as they stood; those that can be taken image by image ``inside``, others ``before`` them or
    ``after`` them.
    """

    layers: list[Layer] = field(default_factory=list)
    before: list[Layer] = field(default_factory=list)
    inside: list[Layer] = field(default_factory=list)
    after: list[Layer] = field(default_factory=list)


def _phases(layers: Sequence[Layer], images: Images) -> Iterator[_Phase]:
    phase = _Phase()
    made: set[str] = set()  # inside
    sums: set[str] = set()  # made inside, and what is made after
    by_image: set[str] = set()  # that it reads so
    whole: set[str] = set()
    for layer in layers:
        apart = images.apart(layer)
        own, shared = (own_inputs(layer), shared_inputs(layer)) if apart else ([], [])
        readable = sums.isdisjoint(layer.inputs) and made.isdisjoint(shared)
        alike = whole.isdisjoint(own) and by_image.isdisjoint(shared)
        if apart and not (readable and alike and len(phase.inside) < LONGEST):
            yield phase
            phase = _Phase()
            for names in (made, sums, by_image, whole):
                names.clear()
        phase.layers.append(layer)
        if apart:
            by_image.update(own)
            whole.update(shared)
            phase.inside.append(layer)
            (sums if layer.node.declaration.sums_images else made).add(layer.name)
        elif made.isdisjoint(layer.inputs) and sums.isdisjoint(layer.inputs):
            phase.before.append(layer)
        else:
            phase.after.append(layer)
            sums.add(layer.name)
    yield phase


def _choose_runs(prices: "Prices", count: int) -> list[tuple[int, int]]:
    """Disjoint runs ``[start, stop)`` of so many layers that are cheaper image by image, by their prices."""
    best: list[float] = [0.0]
    chosen: list[int] = []
    for stop in range(1, count + 1):
        cycles, pick = best[-1] + prices.together(stop - 1), stop - 1
        for start in range(stop - 1):
            found = best[start] + prices.apart(start, stop)
            if found < cycles:
                cycles, pick = found, start
        best.append(cycles)
        chosen.append(pick)
    runs: list[tuple[int, int]] = []
    stop = count
    while stop > 0:
        start = chosen[stop - 1]
        if stop - start > 1:
            runs.append((start, stop))
        stop = start
    return runs[::-1]


class Prices:
    """Predicted cycles of a core for all images, as if it were the only one."""

    def __init__(
        self,
        layers: Sequence[Layer],
        images: Images,
        machine: Machine,
        readers: Mapping[str, Sequence[str]],
        outputs: Collection[str],
    ) -> None:
        self.layers, self.images, self.machine = layers, images, machine
        place = {layer.name: i for i, layer in enumerate(layers)}
        self.last = {  # place of the last reader: behind all of the layers if it is none of them
            layer.name: max((place.get(name, len(layers)) for name in readers.get(layer.name, ())), default=0)
            for layer in layers
        } | {name: len(layers) for name in outputs}
        self.near, self.far = 1 / machine.l2_bytes_per_cycle, 1 / machine.l3_bytes_per_cycle

    @functools.cache  # noqa: B019  (the object lives as long as one plan is made)
    def compute(self, i: int) -> float:
        """Cycles of the arithmetic of one image."""
        layer, images = self.layers[i], self.images
        node, own = layer.node, own_inputs(layer)
        ins = [images.single(n) if n in own else images.shapes[n] for n in node.inputs]
        out = images.shapes[layer.name] if node.declaration.sums_images else images.single(layer.name)
        params = images.spec.param_shapes(node)
        flops = node.declaration.flops(ins, out, params, node.attrs)
        return arithmetic_cycles(flops, node, params, self.machine)

    def bytes(self, name: str) -> float:
        """Bytes of an image of a value."""
        return 4.0 * size_of(self.images.shapes[name][1:])

    def weights(self, layer: Layer) -> float:
        """Bytes that a layer reads for every image."""
        shared = [self.images.shapes[name] for name in shared_inputs(layer)]
        return 4.0 * sum(map(size_of, [*shared, *self.images.spec.param_shapes(layer.node).values()]))

    def beyond(self, size: float) -> float:
        """Cycles of a byte of a value of which all images are ``size`` bytes."""
        return self.far if size < self.machine.l3 / 2 else 1 / self.machine.memory_bytes_per_cycle

    def together(self, i: int) -> float:
        """Of a layer on its own."""
        layer, batch = self.layers[i], self.images.batch
        moved = sum(map(self.bytes, own_inputs(layer)))
        if not layer.node.declaration.sums_images:
            moved += WRITE * self.bytes(layer.name)
        return batch * (self.compute(i) + moved * self.beyond(batch * moved))

    def apart(self, start: int, stop: int) -> float:
        """Of a run of layers, image by image."""
        batch = self.images.batch
        run = self.layers[start:stop]
        made = {layer.name: i for i, layer in enumerate(run) if not layer.node.declaration.sums_images}
        until = {name: i for i, layer in enumerate(run) for name in own_inputs(layer)}
        change = [0.0] * (len(run) + 1)
        cycles, moved, weights = 0.0, 0.0, 0.0  # bytes moved within the run
        for i, layer in enumerate(run):
            cycles += self.compute(start + i) + STEP
            own = self.weights(layer)
            if own > self.machine.l2:
                return float("inf")  # a tile of pixels after another would read them from further away
            weights += own
            moved += sum(map(self.bytes, own_inputs(layer)))
            if layer.node.declaration.sums_images:  # a part for each image
                cycles += 2.0 * 4.0 * size_of(self.images.shapes[layer.name]) * self.beyond(0.0)
            elif self.last[layer.name] < stop:
                moved += self.bytes(layer.name)
            elif layer.node.op in VIEW_OPS:
                return float("inf")  # it would be a copy
            else:
                cycles += WRITE * self.bytes(layer.name) * self.beyond(batch * self.bytes(layer.name))
        for name, i in until.items():
            if name not in made:
                cycles += self.bytes(name) * self.beyond(batch * self.bytes(name))
                moved -= self.bytes(name)  # once
            change[made.get(name, i)] += self.bytes(name)
            change[i + 1] -= self.bytes(name)
        alive = most = 0.0
        for each in change:
            alive += each
            most = max(most, alive)
        cycles += weights * self.beyond(weights)
        return batch * (cycles + moved * (self.near if most < ROOM * self.machine.l2 else self.far))
