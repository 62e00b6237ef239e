"""Chains: elementwise layers of one shape that one step takes a tile of elements through, in L1.

A chain is a set of layers of which each reads a value of another one. No path leaves it and comes back, so
all of it can run at once. Values may have several readers, inside and outside. Layers that work along rows
(the last axis) may be among them, such as a softmax or a sum; the tiles are then whole rows, and elementwise
layers on one number for each row belong to the chain, too.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import NamedTuple

from bslite.ops import Kind, Shape
from bslite.ops.reduce import Reduction
from bslite.passes import Layer
from bslite.plan.core.layouts import FEW, innermost
from bslite.plan.cpu.stacks import Stack

LONGEST = 64  # layers of a chain
NEAR = 64  # units back that a layer looks for a chain to join: bounds the planner's time
LONGEST_ROW = 8192  # elements: a few rows fit L2
#: Ops whose lowerings take rows along ``axis``, from a value to one of its shape.
ROWS = ("softmax", "log_softmax", "normalize")
NORMS = ("layer_norm", "rms_norm")


class Form(NamedTuple):
    """The ``shape`` of the values of a chain; with ``rows``, tiles hold whole rows of it."""

    shape: Shape
    rows: bool = False

    def along(self, other: "Form") -> "Form | None":
        """The form of a chain of layers of both, if they can be in one."""
        if self.shape == other.shape:
            return Form(self.shape, self.rows or other.rows)
        for whole, part in ((self, other), (other, self)):
            if whole.rows and not part.rows and part.shape == (*whole.shape[:-1], 1):
                return whole
        return None


def form_of(
    layer: Layer, shapes: Mapping[str, Shape], dtypes: Mapping[str, str], second: Collection[str]
) -> Form | None:
    """The form of a layer that can be in a chain. ``second``: the values whose channels are axis 1."""
    node = layer.node
    if node.declaration.kind in (Kind.POINTWISE, Kind.CHANNEL):
        return Form(shapes[layer.name])
    shape = shapes[node.inputs[0]] if node.inputs else ()
    last = len(shape) - 1
    if not shape or shape[-1] > LONGEST_ROW or dtypes[layer.name] != "float32":
        return None
    if node.op in ROWS:
        inner = innermost(len(shape), node.inputs[0] in second)
        in_lanes = inner != last and shape[inner] > FEW  # perhaps: `row_layer` decides
        return Form(shape, True) if node.attrs["axis"] in (-1, last) and not in_lanes else None
    if node.op in NORMS:
        return Form(shape, True) if len(node.attrs["normalized_shape"]) == 1 else None
    if isinstance(node.declaration, Reduction) and node.attrs["keepdim"] and shape[-1] > FEW:
        along = node.declaration.axes(node.attrs, last + 1) == (last,)
        rows = innermost(len(shape), node.inputs[0] in second) == last
        return Form(shape, True) if along and rows else None
    return None


def without_chains(
    stacks: Sequence[Stack],
    layers: Sequence[Layer],
    shapes: Mapping[str, Shape],
    dtypes: Mapping[str, str],
    second: Collection[str],
) -> list[Stack]:
    """The stacks but for those that chains make needless, as all of their layers can be in one."""

    def deep(layer: Layer) -> bool:
        return layer.node.op != "constant" and form_of(layer, shapes, dtypes, second) is None

    return [stack for stack in stacks if any(map(deep, layers[stack.start : stack.stop]))]


@dataclass
class Unit:
    """What runs at once: the ``layers`` of a chain or of a ``stack``, by number, or a single one."""

    layers: list[int]
    stack: Stack | None = None
    form: Form | None = None  # of a chain, which other layers may join


def units(
    layers: Sequence[Layer],
    stacks: Sequence[Stack],
    shapes: Mapping[str, Shape],
    dtypes: Mapping[str, str],
    second: Collection[str],
    chains: bool,
) -> list[Unit]:
    """All layers as units in the order in which they run; elementwise layers as chains if asked for."""
    graph = _Graph()
    starts = {stack.start: stack for stack in stacks}
    i = 0
    while i < len(layers):
        stack = starts.get(i)
        stop = stack.stop if stack else i + 1
        run = layers[i:stop]
        form = form_of(run[0], shapes, dtypes, second) if chains and stack is None else None
        graph.add(Unit(list(range(i, stop)), stack, form), run)
        i = stop
    return graph.in_order()


def needed_after(
    unit: Unit, layers: Sequence[Layer], readers: Mapping[str, Sequence[int]], outputs: Iterable[str]
) -> list[str]:
    """The values made in a chain that other layers, or the ``outputs``, need; ``readers`` by number."""
    mine = set(unit.layers)
    names = [layers[i].name for i in unit.layers]
    return [n for n in names if n in outputs or not mine.issuperset(readers.get(n, ()))]


class _Graph:
    """Units by number. Sets of units are integers with a bit for each number."""

    def __init__(self) -> None:
        self._units: dict[int, Unit] = {}  # by growing numbers
        self._above: dict[int, int] = {}  # the units that each one depends on
        self._home: dict[str, int] = {}  # value -> the unit that makes it
        self._values: dict[int, list[str]] = {}
        self._inputs: dict[int, set[str]] = {}

    def add(self, unit: Unit, run: Sequence[Layer]) -> None:
        """Add a unit after all that it depends on; an elementwise layer joins chains that it reads."""
        number = len(self._home)  # grows with every unit
        made = [layer.name for layer in run]
        feeds = {self._home[name] for layer in run for name in layer.inputs if name in self._home}
        above = 0
        for other in feeds:
            above |= 1 << other | self._above[other]
        joined: list[int] = []
        if unit.form is not None:
            near = set(islice(reversed(self._units), NEAR))
            for other in sorted(feeds & near, reverse=True):
                theirs = self._units[other].form
                form = theirs and unit.form.along(theirs)
                size = sum(len(self._units[n].layers) for n in (*joined, other))
                if form and size < LONGEST and self._convex([*joined, other], above):
                    joined.append(other)
                    unit.form = form
        self._units[number], self._above[number], self._values[number] = unit, above, made
        self._inputs[number] = {name for layer in run for name in layer.inputs}
        self._home |= dict.fromkeys(made, number)
        if joined:
            self._merge([*joined, number])

    def _convex(self, numbers: Sequence[int], above: int) -> bool:
        """Whether no path leaves these units and comes back, to them or to what depends on ``above``."""
        mine = 0
        for n in numbers:
            mine |= 1 << n
            above |= self._above[n]
        between = [n for n in self._after(min(numbers)) if above >> n & 1 and not mine >> n & 1]
        return not any(self._above[n] & mine for n in between)

    def _after(self, number: int) -> Iterator[int]:
        """The units of larger numbers: no other one depends on it."""
        return takewhile(lambda n: n > number, reversed(self._units))

    def _merge(self, numbers: Sequence[int]) -> None:
        """Make one unit of several, of the form of the last, under the smallest of their numbers."""
        first = min(numbers)
        mine = above = 0
        for n in numbers:
            mine |= 1 << n
            above |= self._above[n]
        above &= ~mine
        unit = self._units[first]
        unit.form = self._units[numbers[-1]].form
        for n in numbers:
            if n != first:
                unit.layers += self._units.pop(n).layers
                self._values[first] += self._values.pop(n)
                self._inputs[first] |= self._inputs.pop(n)
                del self._above[n]
        unit.layers.sort()
        self._home |= dict.fromkeys(self._values[first], first)
        self._above[first] = above
        for n in self._after(first):
            if self._above[n] & mine:
                self._above[n] = self._above[n] & ~mine | 1 << first | above

    def in_order(self) -> list[Unit]:
        """The units in a topological order: as the layers stood, a chain where its last layer stood."""
        feeds = {n: {self._home[i] for i in self._inputs[n] if i in self._home} - {n} for n in self._units}
        readers: dict[int, list[int]] = {}
        for n, needed in feeds.items():
            for other in needed:
                readers.setdefault(other, []).append(n)
        waits = {n: len(needed) for n, needed in feeds.items()}
        ready = [(unit.layers[-1], n) for n, unit in self._units.items() if not waits[n]]
        heapq.heapify(ready)
        order: list[Unit] = []
        while ready:
            _, done = heapq.heappop(ready)
            order.append(self._units[done])
            for n in readers.get(done, ()):
                waits[n] -= 1
                if not waits[n]:
                    heapq.heappush(ready, (self._units[n].layers[-1], n))
        assert len(order) == len(self._units)
        return order
