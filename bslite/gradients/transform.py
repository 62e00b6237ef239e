"""Reverse accumulation: the layers backwards, each by the vjp of its op."""

from collections.abc import Collection, Sequence

from bslite.errors import InputError, SpecError, UnsupportedError
from bslite.gradients.nested import nested
from bslite.gradients.sums import Sums
from bslite.gradients.tape import GraphTape, learnt, measured
from bslite.ops.contraction import BlockLinear
from bslite.ops.values import Applied
from bslite.passes.attention import fuse_attention
from bslite.passes.parts import all_blocks_widened
from bslite.spec import ModelSpec, Node
from bslite.spec.kinds import shapes_of


def gradient(
    spec: ModelSpec,
    wrt: Sequence[str] | None = None,
    shapes: Sequence[Sequence[int]] | None = None,
    of: Sequence[str] | None = None,
    unit: bool = True,
) -> ModelSpec:
    """A model with the outputs of ``spec`` and, after them, the gradients of what ``wrt`` names.

    ``wrt``: inputs and parameters of float32; if None, all parameters of layers. Those that are values
    themselves (``constant``: an embedding's table, a token), which may be numbers that nobody learns, have to
    be named. ``shapes``: of the inputs, which the new model fixes; those of the examples if None. ``of``:
    labels of the outputs that have gradients, all of float32 if None. For each of them the model has one
    input more, the gradient that comes from behind it, of its shape, called "d/" and the output's label; a
    single output of shape [], a loss, has none: its own gradient is 1. The gradients are labelled likewise.
    What nothing depends on has the gradient 0. Without ``unit`` a loss has an input, too. Weights of a few
    bits (`block_linear`) are float32 in the new model, by which there are gradients, and called
    "LAYER/widened".

    Raises SpecError if ``wrt`` or ``of`` names what is not there or is not float32, and UnsupportedError with
    all the layers in the way that have no gradient.
    """
    if not isinstance(spec, ModelSpec):
        raise InputError(f"gradient() takes a ModelSpec, got {type(spec).__name__}")
    given = shapes_of("gradient", shapes) or [i.example for i in spec.inputs]
    spec = _widened(spec, wrt)
    wanted = _wanted(spec, wrt)
    sizes = {name: p.shape for name, p in spec.params.items()}
    keys = {key for key in wanted if key in sizes}
    inputs = {name for name in wanted if name not in keys}
    if keys.isdisjoint(n.params["value"] for n in spec.nodes if n.op == "constant"):  # a mask may become part
        spec = fuse_attention(spec, learns=True)
    spec = nested(in_parts(spec, _reached(spec, inputs, keys)))
    reached = _reached(spec, inputs, keys)
    known = spec.infer_shapes(given)
    tape = GraphTape(spec.name, spec.params)
    tape.follow(spec, known, reached)
    grads = _seeds(spec, tape, of, unit)
    found = Sums(tape)
    lacking: list[str] = []
    for node in reversed(spec.nodes):
        if node.name not in reached or spec.dtypes[node.name] != "float32":
            continue
        tape.layer = f"d/{node.name}"
        grad = grads.of(node.name)
        if grad is None:
            continue
        read = tuple(tape[i] for i in node.inputs)
        asked = [i for i, name in enumerate(node.inputs) if name in reached]
        at = Applied(read, tape[node.name], node.params, node.attrs, tape.kept.get(node.name), asked)
        try:
            made = node.declaration.vjp(at, grad)
        except UnsupportedError as e:
            lacking.append(f"layer {node.name!r}: {e}")
            # of any value, to find what is lacking behind it
            made = {i: tape.constant(0.0).expand(tape[name].shape) for i, name in enumerate(node.inputs)}
        for place, value in made.items():
            if isinstance(place, str):
                key = node.params.get(place)
                if key in keys:
                    found.add(key, value)
            elif spec.dtypes[node.inputs[place]] == "float32":
                grads.add(node.inputs[place], value)
    if lacking:
        raise UnsupportedError("; ".join(reversed(lacking)))
    tape.layer = "d"
    gradients = []
    for name in wanted:
        total = (found if name in keys else grads).of(name)
        shape = sizes[name] if name in keys else known[name]
        gradients.append(tape.constant(0.0).expand(shape) if total is None else total)
    labels = [*spec.labels, *(f"d/{name}" for name in wanted)]
    if twice := {label for label in labels if labels.count(label) > 1}:
        raise SpecError(f"model {spec.name!r}: two outputs would be called {', '.join(sorted(twice))}")
    return tape.build([*(tape[out].name for out in spec.outputs), *(g.name for g in gradients)], labels)


def _widened(spec: ModelSpec, wrt: Sequence[str] | None) -> ModelSpec:
    """The model with all weights of a few bits as float32."""
    few = [node for node in spec.nodes if isinstance(node.declaration, BlockLinear)]
    for node in few:
        for role, key in node.params.items():
            if role != "bias" and key in (wrt or ()):
                raise UnsupportedError(f"layer {node.name!r}: op {node.op!r} has no gradient by its {role}")
    return all_blocks_widened(spec) if few else spec


def in_parts(spec: ModelSpec, layers: Collection[str]) -> ModelSpec:
    """The model with those of the ``layers`` as several nodes that have gradients only so (`Op.as_nodes`)."""
    tape = GraphTape(spec.name, spec.params)
    made = {i.name: tape.input(i.name, i.shape, i.dtype, i.example) for i in spec.inputs}
    parted = False
    for node in spec.nodes:
        inputs, tape.layer = [made[name] for name in node.inputs], node.name
        found = node.declaration.as_nodes(inputs, node.params, node.attrs) if node.name in layers else None
        parted |= found is not None
        made[node.name] = found or tape.node(node, inputs)
    return tape.build([made[name].name for name in spec.outputs], spec.labels) if parted else spec


def _wanted(spec: ModelSpec, wrt: Sequence[str] | None) -> list[str]:
    if wrt is None:
        return learnt(spec)
    dtypes = {i.name: i.dtype for i in spec.inputs} | {k: p.dtype.name for k, p in spec.params.items()}
    for name in wrt:
        if name not in dtypes:
            raise SpecError(f"{name!r} is neither an input nor a parameter of the model {spec.name!r}")
        if dtypes[name] != "float32":
            raise SpecError(f"{name!r} is {dtypes[name]}; gradients are of float32")
        if statistic := next(
            (n for n in spec.nodes for r, k in n.params.items() if k == name and measured(r)), None
        ):
            raise SpecError(f"{name!r} is a statistic of layer {statistic.name!r}, which has no gradient")
    return list(wrt)


def passes(spec: ModelSpec, node: Node) -> bool:
    """Whether gradients go through a node, be they zero: not through integers and conditions."""
    return spec.dtypes[node.name] == "float32" and node.op != "stop_gradient"


def _reached(spec: ModelSpec, inputs: set[str], keys: set[str]) -> set[str]:
    """The layers that depend on what is asked for."""
    reached = set(inputs)
    for node in spec.nodes:
        if not passes(spec, node):
            continue
        if not reached.isdisjoint(node.inputs) or not keys.isdisjoint(node.params.values()):
            reached.add(node.name)
    return reached


def _seeds(spec: ModelSpec, tape: GraphTape, of: Sequence[str] | None, unit: bool) -> Sums:
    """The gradients that come from behind: inputs, or 1 of a loss."""
    seeds = Sums(tape)
    made = [(out, label) for out, label in zip(spec.outputs, spec.labels, strict=True)]
    floats = [(out, label) for out, label in made if tape[out].dtype == "float32"]
    if of is not None:
        if wrong := [label for label in of if label not in [found for _, found in floats]]:
            raise SpecError(f"model {spec.name!r} has no output of float32 called {', '.join(wrong)}")
        floats = [(out, label) for out, label in floats if label in of]
    taken = {i.name for i in spec.inputs} | {n.name for n in spec.nodes}
    for out, label in floats:
        shape = tape[out].shape
        loss = unit and len(floats) == 1 and shape == ()
        if not loss and f"d/{label}" in taken:
            raise SpecError(f"model {spec.name!r}: what would be the gradient of {label!r} is there already")
        seed = tape.constant(1.0) if loss else tape.input(f"d/{label}", shape)
        seeds.add(out, seed)
    return seeds
