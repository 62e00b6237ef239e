"""Which nodes become one engine layer: a main op with what can ride in its store."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from bslite.ops import REGISTRY, Kind
from bslite.ops.activation import Activation
from bslite.ops.binary import Binary
from bslite.passes.families import CONVS, POOLS, TRANSPOSED
from bslite.passes.rewrite import other_input, readers
from bslite.spec import ModelSpec, Node

#: Activations a kernel can apply to what it has just computed: one input, one value.
ACTIVATIONS = tuple(op.name for op in REGISTRY.values() if isinstance(op, Activation))
BINARY = tuple(op.name for op in REGISTRY.values() if isinstance(op, Binary))
#: Ops whose kernels apply an affine per channel (a batch norm) in the store. Convolutions and linear layers
#: are not among them: it is folded into their weights.
WITH_AFFINE = POOLS
#: Ops whose kernels apply an activation in the store; those of group norms do on CPUs alone.
WITH_ACTIVATION = (
    *CONVS, *TRANSPOSED, "linear", "block_linear", "batch_norm", "group_norm", "scale_shift", *BINARY, *POOLS,
)  # fmt: skip

#: Why a node that a layer cannot take is a layer of its own, by what it does to its data.
ALONE = {
    Kind.CONTRACTION: "sums over channels: a layer of its own",
    Kind.WINDOW: "reads a window around each output: a layer of its own",
    Kind.REDUCTION: "needs whole rows of its input: a layer of its own",
    Kind.MOVEMENT: "moves data and computes nothing",
    Kind.CHANNEL: "applies parameters of its own: a layer of its own",
    Kind.POINTWISE: "is no activation of one input: no store applies it",
}


class Reason(NamedTuple):
    """A sentence with a gap ``{}`` for each of the ``names`` of nodes it speaks of."""

    text: str = ""
    names: tuple[str, ...] = ()

    def say(self, call: Callable[[str], str] = str) -> str:
        """The sentence; ``call`` gives the name to use for a node."""
        return self.text.format(*map(call, self.names))


UNKNOWN = Reason()


@dataclass(frozen=True)
class Layer:
    """One op of the engine: ``node``, then ``affine`` (a batch norm) or ``+ residual``, then ``activation``.

    A layer is named after its last node. ``apart`` says why the reader of its value is not part of it.
    """

    node: Node
    affine: Node | None = None
    residual: str | None = None
    activation: Node | None = None
    name: str = ""
    members: tuple[str, ...] = ()
    apart: Reason = UNKNOWN

    @property
    def inputs(self) -> tuple[str, ...]:
        """All values it reads."""
        return (*self.node.inputs, *((self.residual,) if self.residual is not None else ()))


def fuse(spec: ModelSpec, enabled: bool = True, sums: bool = False, norms: bool = True) -> list[Layer]:
    """The model as layers in a topological order. With ``enabled`` false, one layer per node, or where a
    store adds a residual and ``sums``, one for both: a store may round what it adds. ``norms``: whether the
    store of a group norm applies an activation.

    Sizes have no say in it, so it is done once per model.
    """
    known = spec.__dict__.setdefault("_layers", {})
    if norms not in known:
        known[norms] = _fuse(spec, norms)
    made = known[norms]
    return list(made) if enabled else _unfused(spec, made, sums)


def _unfused(spec: ModelSpec, layers: Sequence[Layer], sums: bool) -> list[Layer]:
    off = Reason("fusing is off")
    adding = [layer for layer in layers if sums and layer.residual is not None and layer.affine is None]
    both = {name: layer for layer in adding for name in layer.members[:2]}
    found = []
    for node in spec.nodes:
        layer = both.get(node.name)
        if layer is None:
            found.append(Layer(node, name=node.name, members=(node.name,), apart=off))
        elif node.name == layer.members[1]:
            found.append(
                replace(layer, activation=None, name=node.name, members=layer.members[:2], apart=off)
            )
    return found


def _fuse(spec: ModelSpec, norms: bool) -> list[Layer]:
    reading = readers(spec)
    position = {n.name: i for i, n in enumerate(spec.nodes)}
    shapes = spec.infer_shapes([i.example for i in spec.inputs])
    kept = set(spec.outputs)
    absorbed: dict[str, str] = {}  # node -> the layer's main node that took it

    def why_not_add(node: Node, add: Node, residual: str | None, activation: Node | None) -> Reason | None:
        """Why the layer of ``node`` does not take the sum that follows; None if it does."""
        if add.name in absorbed:
            return Reason("the sum {} is taken in the store of {}", (add.name, absorbed[add.name]))
        if activation is not None:
            return Reason("the sum {} comes after the activation; a store adds before it", (add.name,))
        if residual is not None:
            return Reason("the sum {} is a second one; a store adds one residual", (add.name,))
        if not _adds_in_store(node):
            conv = node.declaration.plain in (*CONVS, *TRANSPOSED)
            what = "a grouped or depthwise convolution" if conv else node.op
            return Reason(what + " cannot add a residual in its store: {} is a layer of its own", (add.name,))
        other = other_input(add, node.name)
        if not shapes[other] == shapes[node.name] == shapes[add.name]:
            return Reason("the sum {} broadcasts; a store adds values of one shape", (add.name,))
        if not _is_main(other, node.name, spec, position, reading, kept):
            return Reason("the sum {} is left to {}, the later of the two", (add.name, other))
        return None

    layers: list[
        tuple[int, Layer]
    ] = []  # with the place of the last member: a layer runs where that one stood
    for node in spec.nodes:
        if node.name in absorbed:
            continue
        members, affine, residual, activation = [node.name], None, None, None
        while True:
            after, apart = _only_reader(members[-1], reading, kept)
            if after is None:
                break
            if after.op == "add" and not (apart := why_not_add(node, after, residual, activation)):
                residual = other_input(after, node.name)
            elif after.op == "batch_norm" and not (apart := _why_not_affine(node, after, affine, activation)):
                affine = after
            elif after.op in ACTIVATIONS and not (apart := _why_not_activate(node, after, activation, norms)):
                activation = after
            else:
                apart = apart or Reason(f"{{}} ({after.op}) {ALONE[after.declaration.kind]}", (after.name,))
                break
            members.append(after.name)
            absorbed[after.name] = node.name
        layer = Layer(node, affine, residual, activation, members[-1], tuple(members), apart or UNKNOWN)
        layers.append((position[members[-1]], layer))
    return [layer for _, layer in sorted(layers, key=lambda pair: pair[0])]


def _only_reader(
    name: str, reading: Mapping[str, list[Node]], kept: set[str]
) -> tuple[Node | None, Reason | None]:
    """The node that alone reads the value ``name``, or None and why there is no such node."""
    if name in kept:
        return None, Reason("its value is an output of the model")
    found = reading.get(name, [])
    names = tuple(dict.fromkeys(node.name for node in found))
    if len(found) == 1:
        return found[0], None
    if not found:
        return None, Reason("nothing reads its value")
    if len(names) == 1:
        return None, Reason(f"{{}} reads its value {len(found)} times", names)
    gaps = ", ".join(["{}"] * min(3, len(names))) + (", ..." if len(names) > 3 else "")
    return None, Reason(f"its value is read by {len(names)} layers: {gaps}", names[:3])


def _why_not_affine(node: Node, after: Node, affine: Node | None, activation: Node | None) -> Reason | None:
    """Why the layer of ``node`` does not apply the batch norm that follows; None if it does."""
    if node.op not in WITH_AFFINE:
        return Reason(f"{{}} (batch_norm) after {node.op} is a step of its own", (after.name,))
    if activation is not None:
        return Reason(
            "the batch norm {} comes after the activation; a store applies it before", (after.name,)
        )
    if affine is not None:
        return Reason("{} is a second batch norm; a store applies one", (after.name,))
    return None


def _why_not_activate(node: Node, after: Node, activation: Node | None, norms: bool) -> Reason | None:
    """Why the layer of ``node`` does not apply the activation that follows; None if it does."""
    if node.declaration.plain not in WITH_ACTIVATION or (node.op == "group_norm" and not norms):
        return Reason(f"an activation after {node.op} is a step of its own: {{}}", (after.name,))
    if activation is not None:
        return Reason("{} is a second activation; a store applies one", (after.name,))
    return None


def _adds_in_store(node: Node) -> bool:
    """Whether the op's kernel can add a residual in its store."""
    dense = node.declaration.plain in (*CONVS, *TRANSPOSED) and node.attrs["groups"] == 1
    return dense or node.op == "batch_norm_grad"


def _is_main(
    other: str,
    name: str,
    spec: ModelSpec,
    position: dict[str, int],
    reading: dict[str, list[Node]],
    kept: set[str],
) -> bool:
    """Whether the convolution ``name`` takes the sum, not ``other``: the later of two does."""
    if other not in position:
        return True  # a model input
    rival = spec.nodes[position[other]]
    eligible = _adds_in_store(rival) and len(reading.get(other, [])) == 1 and other not in kept
    return not eligible or position[name] > position[other]
