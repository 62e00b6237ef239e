"""Which nodes become one engine layer: a main op with what can ride in its store."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Layer:
    """One op of the engine: ``node``, then ``+ residual``, then ``activation``. Named after the last node in
    it.
    """

    node: Node
    residual: str | None = None
    activation: Node | None = None
    name: str = ""
    members: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        """All values it reads."""
        return (*self.node.inputs, *((self.residual,) if self.residual is not None else ()))


def fuse(spec: ModelSpec, enabled: bool = True) -> list[Layer]:
    """The model as layers in a topological order. With ``enabled`` false, one layer per node."""
    if not enabled:
        return [Layer(n, name=n.name, members=(n.name,)) for n in spec.nodes]
    reading = readers(spec)
    position = {n.name: i for i, n in enumerate(spec.nodes)}
    shapes = spec.infer_shapes([i.example for i in spec.inputs])
    kept = set(spec.outputs)
    absorbed: set[str] = set()

    def only_reader(name: str) -> Node | None:
        found = reading.get(name, [])
        return found[0] if len(found) == 1 and name not in kept else None

    layers: list[
        tuple[int, Layer]
    ] = []  # with the place of the last member: a layer runs where that one stood
    for node in spec.nodes:
        if node.name in absorbed:
            continue
        members, residual, activation = [node.name], None, None
        after = only_reader(node.name)
        if _adds_in_store(node) and after is not None and after.op == "add" and after.name not in absorbed:
            other = after.inputs[1] if after.inputs[0] == node.name else after.inputs[0]
            if shapes[other] == shapes[node.name] == shapes[after.name] and _is_main(
                other, node.name, spec, position, reading, kept
            ):
                residual = other
                members.append(after.name)
                absorbed.add(after.name)
                after = only_reader(after.name)
        if (
            node.op in WITH_ACTIVATION
            and after is not None
            and after.op in ACTIVATIONS
            and after.name not in absorbed
        ):
            activation = after
            members.append(after.name)
            absorbed.add(after.name)
        layers.append((position[members[-1]], Layer(node, residual, activation, members[-1], tuple(members))))
    return [layer for _, layer in sorted(layers, key=lambda pair: pair[0])]


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
