"""The work of a group of layers: operations, and the bytes that must move however it is done."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from bslite.explanation.data.fusions import Fusion
from bslite.explanation.data.memory import bytes_held, weight_bytes
from bslite.ops import Kind, Shape
from bslite.passes import readers
from bslite.plan import Plan
from bslite.spec import ModelSpec, Node


class Work(NamedTuple):
    """``flops``: a multiply-add is two. ``bytes``: values in and out. ``weights``: bytes of parameters."""

    flops: int
    bytes: int
    weights: int


def work(
    spec: ModelSpec, shapes: Mapping[str, Shape], plan: Plan, group: Sequence[Fusion],
    weights: Mapping[str, int] | None = None,
) -> Work:  # fmt: skip
    """The work of ``group``, layers that run as one: values that only they read count as not moved.
    ``weights``: the bytes of each parameter, if not those of the plan.
    """
    weights = weight_bytes(spec, plan) if weights is None else weights
    names = {name for f in group for name in f.members}
    nodes = [n for n in spec.nodes if n.name in names]
    reading = readers(spec)
    flops = 0
    keys: set[str] = set()
    moved: dict[str, int] = {}  # elements of values that are read or written
    for node in nodes:
        if node.declaration.kind is Kind.SOURCE:
            continue  # it is there; who reads it moves it
        summed = summed_before(plan, node)
        averages = [r for r in reading.get(node.name, ()) if summed_before(plan, r)][:1]  # all read one sum
        computed = averages + [node] * (not summed)
        flops += sum(_flops(spec, shapes, n) for n in computed)
        keys |= set(node.params.values())
        made = {node.name: math.prod(shapes[node.name])}
        moves = node.declaration.kind is Kind.MOVEMENT
        if moves and (free := in_place(plan, node.name, node.inputs)):
            _note(moved, _read(shapes, node, free))
            moved |= made if moved else {}
            continue
        _note(moved, {} if summed else _read(shapes, node, names))
        if node.name in spec.outputs or any(r.name not in names for r in reading.get(node.name, ())):
            moved |= made
    return Work(flops, 4 * sum(moved.values()), sum(weights[key] for key in keys))


def _read(shapes: Mapping[str, Shape], node: Node, without: Collection[str]) -> dict[str, int]:
    """How many elements of its inputs a node reads at least, but for those ``without``."""
    ins, out = [shapes[i] for i in node.inputs], shapes[node.name]
    return {
        n: node.declaration.elements_read(i, ins, out) for i, n in enumerate(node.inputs) if n not in without
    }


def _note(moved: dict[str, int], read: Mapping[str, int]) -> None:
    for name, elements in read.items():
        moved[name] = max(elements, moved.get(name, 0))


def summed_before(plan: Plan, node: Node) -> bool:
    """Whether the layer before sums the lines of the image that a node averages: it then reads these sums."""
    if node.op != "adaptive_avg_pool2d" or node.inputs[0] not in plan.values:
        return False
    read = {access.buffer for step in plan.steps if node.name in step.layers for access in step.reads}
    return bool(read) and plan.values[node.inputs[0]].buffer not in read


def _flops(spec: ModelSpec, shapes: Mapping[str, Shape], node: Node) -> int:
    ins = [shapes[i] for i in node.inputs]
    return node.declaration.flops(ins, shapes[node.name], spec.param_shapes(node), node.attrs)


def in_place(plan: Plan, name: str, inputs: Sequence[str]) -> set[str]:
    """The ``inputs`` that already lie in the buffer of the value ``name``: nothing moves for them."""
    value = plan.values.get(name)
    found = {i: plan.values.get(i) for i in inputs}
    return {i for i, view in found.items() if value and view and view.buffer == value.buffer}


def footprint(spec: ModelSpec, plan: Plan) -> int:
    """Bytes a whole run touches: parameters, inputs, outputs, arena, scratch memory."""
    return sum(bytes_held(spec, plan).values()) + 4 * plan.threads * plan.scratch_size
