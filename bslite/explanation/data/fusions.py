"""The nodes of the user's model in each layer of the engine, and why the layer ends where it does."""

from collections.abc import Sequence
from dataclasses import dataclass

from bslite.explanation.data.stacking import Forecast
from bslite.ops.pointwise import IDENTITIES
from bslite.passes import Layer, fuse, readers, why_not_folded
from bslite.passes.branches import LINEAR
from bslite.passes.enlargements import RESIZES
from bslite.passes.families import CONVS, TRANSPOSED
from bslite.plan import AnyPlan
from bslite.plan.core.concats import VIEW_OPS
from bslite.plan.core.views import View
from bslite.spec import ModelSpec, Node


@dataclass(frozen=True)
class Fusion:
    """One layer. ``name`` is the user's name of its main op, ``value`` the name of the value it makes.

    ``members`` are its nodes in the simplified model, ``nodes`` the nodes of the user's model in it.
    """

    name: str
    op: str
    value: str
    members: tuple[str, ...]
    nodes: tuple[str, ...]
    holds: tuple[str, ...]
    apart: str
    forecast: Forecast | None = None


def fusions(original: ModelSpec, spec: ModelSpec, plan: AnyPlan, norms: bool = True) -> list[Fusion]:
    """The layers of ``spec``, which is ``original`` simplified, in the order of the model. ``norms`` as for
    `fuse`.
    """
    owner = _owners(original, spec)
    before = {n.name: n for n in original.nodes}
    concats = {i: n for n in spec.nodes if n.op == "concat" for i in n.inputs}
    values = {**_inner_values(plan), **plan.values}
    names: dict[str, str] = {}  # node of the simplified model -> the user's name of what it computes
    for node in spec.nodes:
        mine = [n for n, o in owner.items() if o == node.name and before[n].op == node.op]
        names[node.name] = mine[0] if mine else node.name
    found = []
    for layer in fuse(spec, norms=norms):
        apart = layer.apart.say(lambda name: names.get(name, name))
        if layer.node.op == "batch_norm":
            nodes = {n.name: n for n in spec.nodes}
            apart += f"; not folded: {why_not_folded(spec, layer.node, nodes, readers(spec))}"
        held = tuple(n for n, o in owner.items() if o in layer.members)
        holds = tuple(_holds(layer, held, before, values, concats.get(layer.name), names))
        name, op = names[layer.node.name], layer.node.op
        found.append(Fusion(name, op, layer.name, layer.members, held, holds, apart))
    return found


def _owners(original: ModelSpec, spec: ModelSpec) -> dict[str, str]:
    """Each node of ``original`` -> the node of ``spec``, its simplified form, that does its work.

    A node that is gone belongs to what reads its value: a convolution to the batch norm that was folded into
    it, parts of what was written out to the op that computes it. A dropout, which does nothing, belongs to
    what makes its input, as any op that is the identity. Where that is an input of the model, the first layer
    stands in.
    """
    kept = {n.name for n in spec.nodes}
    before = {n.name: n for n in original.nodes}

    def through(name: str) -> str:
        while name in before and before[name].op in IDENTITIES:
            name = before[name].inputs[0]
        return name

    reader: dict[str, str] = {}
    for node in original.nodes:
        if node.op not in IDENTITIES:
            reader |= {name: node.name for i in node.inputs if (name := through(i)) not in reader}
    found: dict[str, str] = {}
    for node in reversed(original.nodes):
        name = node.name
        found[name] = name if name in kept else found.get(reader.get(name, ""), spec.nodes[0].name)
    found |= {
        n.name: found.get(through(n.name), spec.nodes[0].name) for n in original.nodes if n.op in IDENTITIES
    }
    return {n.name: found[n.name] for n in original.nodes}


def _holds(
    layer: Layer,
    held: Sequence[str],
    before: dict[str, Node],
    values: dict[str, View],
    concat: Node | None,
    names: dict[str, str],
) -> list[str]:
    """What the layer computes beside its main op, in the order of computation, in words."""
    said = []
    in_store = [n.name for n in (layer.affine,) if n is not None]
    folded = [n for n in held if before[n].op == "batch_norm" and n not in in_store]
    folded = folded if layer.node.op != "batch_norm" else []
    said += [f"batch norm {n} folded into the weights" for n in folded]
    joined = [n for n in held if before[n].op == layer.node.op in LINEAR and n not in layer.members][1:]
    said += [f"weights of {n} added to its own" for n in joined]
    said += [f"dropout {n} dropped" for n in held if before[n].op == "dropout"]
    reads = layer.node.op in (*CONVS, *TRANSPOSED, "linear")
    enlarging = [n for n in held if before[n].op in RESIZES] if reads else []
    said += [f"reads what {n} enlarges" for n in enlarging]
    cut = [n for n in held if before[n].op == "slice"] if layer.node.op in (*CONVS, *TRANSPOSED) else []
    said += [f"makes only what {n} keeps" for n in cut]
    plain = ("batch_norm", *IDENTITIES, "constant", layer.node.op, *(("add",) if joined else ()))
    plain += ("slice",) if cut else ()
    plain += (*RESIZES, "concat", *CONVS) if enlarging else ()
    own = [n for n in held if n == layer.node.name or n not in layer.members]
    written = list(dict.fromkeys(before[n].op for n in own if before[n].op not in plain))
    if written:
        said.append(f"written out as {', '.join(written)}")
    if layer.affine is not None:
        said.append(f"batch norm {layer.affine.name} in the store")
    if layer.residual is not None:
        said.append(f"adds {names.get(layer.residual, layer.residual)} in the store")
    if layer.activation is not None:
        said.append(f"{layer.activation.op} in the store")
    mine = values.get(layer.name)
    inputs = [values.get(i) for i in layer.node.inputs]
    shared = [v is not None and mine is not None and v.buffer == mine.buffer for v in inputs]
    if layer.node.op in VIEW_OPS and inputs and shared[0]:
        said.append("a view of its input: nothing moves")
    elif layer.node.op == "concat":
        said.append(f"{sum(shared)} of {len(inputs)} inputs written in place")
    elif layer.node.op == "constant":
        said.append("the parameter itself")
    elif concat is not None and mine is not None:
        whole = values.get(concat.name)
        if whole is not None and whole.buffer == mine.buffer:
            said.append(f"written into its slice of {concat.name}")
    return said


def _inner_values(plan: AnyPlan) -> dict[str, View]:
    """Views of the values inside stacks."""
    found: dict[str, View] = {}
    for step in plan.steps:
        inner = step.inner
        if inner is not None:
            found |= {**_inner_values(inner), **inner.values}
    return found
