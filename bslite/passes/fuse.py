"""Which nodes become one engine layer: a main op with what can ride in its store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bslite.ops import Kind
from bslite.passes.rewrite import readers
from bslite.spec import ModelSpec, Node

#: Activations a kernel can apply to what it has just computed: one input, one value.
ACTIVATIONS = (
    "relu",
    "relu6",
    "leaky_relu",
    "elu",
    "gelu",
    "silu",
    "sigmoid",
    "tanh",
    "hardswish",
    "hardsigmoid",
)
#: Ops whose kernels apply an activation in the store.
WITH_ACTIVATION = ("conv2d", "linear", "batch_norm", "add", "mul")


#: Why a node that a layer cannot take is a layer of its own, by what it does to its data.
ALONE = {
    Kind.CONTRACTION: "sums over channels: a layer of its own",
    Kind.WINDOW: "reads a window around each output: a layer of its own",
    Kind.REDUCTION: "needs whole rows of its input: a layer of its own",
    Kind.MOVEMENT: "moves data and computes nothing",
    Kind.CHANNEL: "applies parameters of its own: no store does that",
    Kind.POINTWISE: "is no activation of one input: no store applies it",
}


@dataclass(frozen=True)
class Layer:
    """One op of the engine: ``node``, then ``+ residual``, then ``activation``. Named after the last node in
    it. ``apart`` says why it ends there: what kept the reader of its value out of it.
    """

    node: Node
    residual: str | None = None
    activation: Node | None = None
    name: str = ""
    members: tuple[str, ...] = ()
    apart: str = ""

    @property
    def inputs(self) -> tuple[str, ...]:
        """All values it reads."""
        return (*self.node.inputs, *((self.residual,) if self.residual is not None else ()))


def fuse(spec: ModelSpec, enabled: bool = True) -> list[Layer]:
    """The model as layers in a topological order. With ``enabled`` false, one layer per node."""
    if not enabled:
        off = "fusing is off"
        return [Layer(n, name=n.name, members=(n.name,), apart=off) for n in spec.nodes]
    reading = readers(spec)
    position = {n.name: i for i, n in enumerate(spec.nodes)}
    shapes = spec.infer_shapes([i.example for i in spec.inputs])
    kept = set(spec.outputs)
    absorbed: dict[str, str] = {}  # node -> the layer's main node that took it

    def why_not_add(node: Node, add: Node, residual: str | None, activation: Node | None) -> str:
        """Why the layer of ``node`` does not take the sum that follows; empty if it does."""
        if add.name in absorbed:
            return f"the sum {add.name} is taken in the store of {absorbed[add.name]}"
        if activation is not None:
            return f"the sum {add.name} comes after the activation; a store adds before it"
        if residual is not None:
            return f"the sum {add.name} is a second one; a store adds one residual"
        if not _adds_in_store(node):
            what = "a grouped or depthwise convolution" if node.op == "conv2d" else f"{node.op}"
            return f"{what} cannot add a residual in its store: {add.name} is a layer of its own"
        other = _other(add, node.name)
        if not shapes[other] == shapes[node.name] == shapes[add.name]:
            return f"the sum {add.name} broadcasts; a store adds values of one shape"
        if not _is_main(other, node.name, spec, position, reading, kept):
            return f"the sum {add.name} is left to {other}, the later of two convolutions"
        return ""

    layers: list[
        tuple[int, Layer]
    ] = []  # with the place of the last member: a layer runs where that one stood
    for node in spec.nodes:
        if node.name in absorbed:
            continue
        members, residual, activation = [node.name], None, None
        while True:
            after, apart = _only_reader(members[-1], reading, kept)
            if after is None:
                break
            if after.op == "add" and not (apart := why_not_add(node, after, residual, activation)):
                residual = _other(after, node.name)
            elif after.op in ACTIVATIONS and not (apart := _why_not_activate(node, after, activation)):
                activation = after
            else:
                apart = apart or f"{after.name} ({after.op}) {ALONE[after.declaration.kind]}"
                break
            members.append(after.name)
            absorbed[after.name] = node.name
        layer = Layer(node, residual, activation, members[-1], tuple(members), apart)
        layers.append((position[members[-1]], layer))
    return [layer for _, layer in sorted(layers, key=lambda pair: pair[0])]


def _only_reader(name: str, reading: Mapping[str, list[Node]], kept: set[str]) -> tuple[Node | None, str]:
    """The node that alone reads the value ``name``, or None and why there is no such node."""
    if name in kept:
        return None, "its value is an output of the model"
    found = reading.get(name, [])
    names = list(dict.fromkeys(node.name for node in found))
    if len(found) == 1:
        return found[0], ""
    if not found:
        return None, "nothing reads its value"
    if len(names) == 1:
        return None, f"{names[0]} reads its value {len(found)} times"
    listed = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return None, f"its value is read by {len(names)} layers: {listed}"


def _why_not_activate(node: Node, after: Node, activation: Node | None) -> str:
    """Why the layer of ``node`` does not apply the activation that follows; empty if it does."""
    if node.op not in WITH_ACTIVATION:
        return f"an activation after {node.op} is a step of its own: {after.name}"
    if activation is not None:
        return f"{after.name} is a second activation; a store applies one"
    return ""


def _other(add: Node, name: str) -> str:
    """The operand of a sum that is not ``name``."""
    return add.inputs[1] if add.inputs[0] == name else add.inputs[0]


def _adds_in_store(node: Node) -> bool:
    """Whether the op's kernel can add a residual in its store: dense convolutions."""
    return node.op == "conv2d" and node.attrs["groups"] == 1


def _is_main(
    other: str,
    name: str,
    spec: ModelSpec,
    position: dict[str, int],
    reading: dict[str, list[Node]],
    kept: set[str],
) -> bool:
    """Whether the convolution ``name``, not ``other``, should take the sum: of two convolutions, the later
    one.
    """
    if other not in position:
        return True  # a model input
    rival = spec.nodes[position[other]]
    eligible = _adds_in_store(rival) and len(reading.get(other, [])) == 1 and other not in kept
    return not eligible or position[name] > position[other]
