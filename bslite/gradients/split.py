"""A gradient model in two halves: the forward pass with the values it saves, and the backward pass."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bslite.errors import SpecError
from bslite.gradients.cut import cheapest
from bslite.ops import Kind
from bslite.passes.layouts import channels_second
from bslite.spec import Input, ModelSpec, Node

#: Kinds of nodes that the backward pass may make again: a pass over memory at most, which it fuses.
CHEAP = (Kind.POINTWISE, Kind.CHANNEL, Kind.MOVEMENT, Kind.SOURCE)
CELL = 4  # bytes of an element, whatever its dtype, as engines have it
POLICIES = ("price", "save")
HALVINGS = 12  # of the range of prices among which one is sought that fits a budget
LAST, SECOND = (0, 2, 3, 1), (0, 3, 1, 2)  # channels last, and second again


@dataclass(frozen=True)
class Saved:
    """What the forward half hands to the backward half of a ``value``: images with channels last, as engines
    have them in memory, others as they are.
    """

    value: str
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * CELL


@dataclass(frozen=True)
class Halves:
    """``forward`` makes the outputs of the model, then the ``saved`` values. ``backward`` takes what it reads
    of the forward half's inputs, called ``reads``, then the saved values, then the seeds; it makes gradients.
    """

    forward: ModelSpec
    backward: ModelSpec
    reads: tuple[str, ...]
    saved: tuple[Saved, ...]
    remade: tuple[str, ...]  # values that the backward half makes again

    @property
    def saved_bytes(self) -> int:
        """Bytes of all saved values."""
        return sum(value.bytes for value in self.saved)


def split(
    joint: ModelSpec, outputs: int, seeds: Sequence[str], policy: str = "price", memory: int | None = None
) -> Halves:
    """Cut a gradient model (`gradient`) in two.

    ``outputs``: how many outputs the model had before; ``seeds``: the inputs that are gradients from behind.
    What depends on no seed is forward. ``policy`` "price" saves the fewest bytes of which all that the
    backward half needs can be made again by functions of one element and by moves (a cheapest cut; of equal
    ones the latest values); "save" saves all of it. Inputs of the model are at hand for nothing. If that is
    more than ``memory`` bytes, any other op is made again, too: those with the fewest flops for a byte.

    Raises SpecError for another policy, a negative ``memory``, or an input that is not there.
    """
    if policy not in POLICIES:
        raise SpecError(f"policy {policy!r} is not one of {', '.join(POLICIES)}")
    if memory is not None and memory < 0:
        raise SpecError(f"saved values cannot take {memory} bytes")
    names = [i.name for i in joint.inputs]
    if lacking := [name for name in seeds if name not in names]:
        raise SpecError(f"model {joint.name!r} has no input {', '.join(lacking)}")
    nodes = {node.name: node for node in joint.nodes}
    late = set(seeds)
    for node in joint.nodes:
        if not late.isdisjoint(node.inputs):
            late.add(node.name)
    made, gradients = joint.outputs[:outputs], joint.outputs[outputs:]
    if wrong := [name for name in made if name in late]:
        raise SpecError(f"model {joint.name!r}: {', '.join(wrong)} depends on gradients from behind")
    needed = {name for n in joint.nodes if n.name in late for name in n.inputs if name not in late}
    needed |= {name for name in gradients if name not in late}
    shapes = joint.infer_shapes([i.example for i in joint.inputs])
    kept = _kept(joint, nodes, shapes, needed - late, set(names), policy, memory)
    again = _again(nodes, kept, needed)
    early = _forward_nodes(joint, {*made, *kept}, late)
    images = channels_second(joint, shapes)
    saved = tuple(_handed(name, shapes[name], joint.dtypes[name], name in images) for name in kept)
    turned = [s for s in saved if s.name != s.value]
    early += [Node(s.name, "permute", (s.value,), attrs={"order": LAST}) for s in turned]
    back = [Node(s.value, "permute", (s.name,), attrs={"order": SECOND}) for s in turned]
    own = _when_needed([node for node in joint.nodes if node.name in late], nodes, again)
    read = {name for node in own for name in node.inputs} | set(gradients)
    reads = tuple(name for name in names if name in read and name not in seeds)
    sources = {i.name: i for i in joint.inputs}
    inputs = [sources[name] for name in reads]
    inputs += [Input(s.name, s.shape, dtype=s.dtype) for s in saved]
    inputs += [sources[name] for name in seeds]
    ours = [i for i in joint.inputs if i.name not in seeds]
    forward = _part(joint, early, ours, (*made, *(s.name for s in saved)), joint.labels[:outputs])
    backward = _part(joint, [*back, *own], inputs, gradients, joint.labels[outputs:])
    return Halves(forward, backward, reads, saved, tuple(again))


def _handed(value: str, shape: tuple[int, ...], dtype: str, image: bool) -> Saved:
    if len(shape) != 4 or not image:
        return Saved(value, value, shape, dtype)
    return Saved(value, f"{value}/channels last", tuple(shape[i] for i in LAST), dtype)


def _part(
    joint: ModelSpec,
    nodes: Sequence[Node],
    inputs: Sequence[Input],
    outputs: Sequence[str],
    labels: Sequence[str],
) -> ModelSpec:
    keys = {key for node in nodes for key in node.params.values()}
    return joint.replace(
        inputs=tuple(inputs),
        nodes=tuple(nodes),
        outputs=tuple(outputs),
        params={key: array for key, array in joint.params.items() if key in keys},
        labels=(*labels, *(f"saved/{name}" for name in outputs[len(labels) :])),
    )


def _kept(
    joint: ModelSpec,
    nodes: Mapping[str, Node],
    shapes: Mapping[str, tuple[int, ...]],
    needed: set[str],
    inputs: set[str],
    policy: str,
    memory: int | None,
) -> list[str]:
    """The values to save, in order."""
    free = inputs | {node.name for node in joint.nodes if not node.inputs}
    prices = {name: 0 if name in free else math.prod(shape) * CELL for name, shape in shapes.items()}
    # Heads are a view of what a linear layer made, which lies in memory as it is saved.
    heads = [n for n in nodes if nodes[n].declaration.kind is Kind.MOVEMENT and len(shapes[n]) > 3]
    prices |= {name: prices[name] + 1 for name in heads}
    kept = needed if policy == "save" else _cheapest(joint, nodes, needed, prices)
    if memory is not None and sum(prices[name] for name in kept) > memory:
        costs = {name: _flops(joint, node, shapes) for name, node in nodes.items()}
        kept, low, high = set(), -40.0, math.log2(1 + sum(prices.values()))  # log2 of bytes for a flop
        for _ in range(HALVINGS):
            rate = (low + high) / 2
            tried = _cheapest(joint, nodes, needed, prices, {n: int(c * 2**rate) for n, c in costs.items()})
            fits = sum(prices[name] for name in tried) <= memory
            kept, low, high = (tried, rate, high) if fits else (kept, low, rate)
    return [node.name for node in joint.nodes if node.name in kept and node.name not in free]


def _cheapest(
    joint: ModelSpec,
    nodes: Mapping[str, Node],
    needed: set[str],
    prices: Mapping[str, int],
    costs: Mapping[str, int] | None = None,
) -> set[str]:
    """The values of a cheapest cut. ``costs``: of making a value again; None if that goes for `CHEAP` kinds
    alone, and for nothing.
    """
    remade = {
        name for name, n in nodes.items() if n.inputs and (costs is not None or n.declaration.kind in CHEAP)
    }
    reached, waiting = set(needed), list(needed)
    while waiting:
        name = waiting.pop()
        if name in remade:
            waiting += [i for i in nodes[name].inputs if i not in reached]
            reached.update(nodes[name].inputs)
    names = [name for name in (*(i.name for i in joint.inputs), *nodes) if name in reached]
    above: dict[str, Iterable[str]] = {name: nodes[name].inputs for name in names if name in remade}
    return cheapest(
        {name: prices[name] for name in names},
        above,
        [name for name in names if name not in remade],
        [name for name in names if name in needed],
        {name: costs[name] for name in names if name in remade} if costs else {},
    )


def _flops(joint: ModelSpec, node: Node, shapes: Mapping[str, tuple[int, ...]]) -> int:
    """What making a value again costs, a flop for each element at least, nothing for `CHEAP` kinds."""
    if node.declaration.kind in CHEAP:
        return 0
    params = {role: joint.params[key].shape for role, key in node.params.items()}
    flops = node.declaration.flops([shapes[i] for i in node.inputs], shapes[node.name], params, node.attrs)
    return max(flops, math.prod(shapes[node.name]))


def _again(nodes: Mapping[str, Node], kept: Sequence[str], needed: set[str]) -> dict[str, None]:
    """The forward nodes that the backward half holds, too."""
    found: dict[str, None] = {}
    waiting = [name for name in needed if name in nodes and name not in kept]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = None
        waiting += [n for n in nodes[name].inputs if n in nodes and n not in kept]
    return found


def _when_needed(late: Sequence[Node], nodes: Mapping[str, Node], again: Collection[str]) -> list[Node]:
    """The ``late`` nodes, and those made ``again``, each just before what reads it first."""
    made: list[Node] = []
    left = set(again)
    for node in [*late, *(nodes[name] for name in again)]:
        waiting = [node]
        while waiting:
            lacking = [name for name in waiting[-1].inputs if name in left]
            waiting += [nodes[name] for name in reversed(lacking)]
            if not lacking:
                last = waiting.pop()
                if last.name in left or (last is node and last.name not in again):
                    made.append(last)
                left.discard(last.name)
    return made


def _forward_nodes(joint: ModelSpec, outputs: set[str], late: set[str]) -> list[Node]:
    """The nodes that the outputs need."""
    needed, found = set(outputs), []
    for node in reversed(joint.nodes):
        if node.name in needed and node.name not in late:
            needed.update(node.inputs)
            found.append(node)
    return found[::-1]
