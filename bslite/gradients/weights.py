"""Parameters as inputs: what a step of training takes, and gives back changed."""

from collections.abc import Mapping, Sequence

from bslite.errors import SpecError, UnsupportedError
from bslite.gradients.tape import GraphTape, learnt
from bslite.ops.training.batch import wide
from bslite.ops.values import Value
from bslite.spec import ModelSpec


def weights_as_inputs(
    spec: ModelSpec, keys: Sequence[str] | None = None, training: bool = False
) -> ModelSpec:
    """The model with the parameters ``keys`` as inputs of the same names, after its own.

    ``keys``: parameters of float32, all that can be learnt if None; ``running_mean`` and ``running_var`` of a
    batch norm may be among them. Every run packs them for the kernels, as constants are packed once; a
    convolution or a linear layer makes the same bits. A norm becomes a few nodes.

    With ``training``, a batch norm goes by the statistics of the batch (arXiv 1502.03167, algorithm 1). They
    are an output more, ``[2, C]``, called "stats/" and the layer's name: the means, and the variances divided
    by n. A dropout multiplies by an input more, called "noise/" and its name, of the shape of its value:
    zeros, and 1 / (1 - p) where an element is kept (arXiv 1207.0580).

    Raises SpecError if ``keys`` names no parameter, or one that is not float32, and UnsupportedError with all
    the layers that take none but constants.
    """
    wanted = learnt(spec) if keys is None else list(keys)
    for key in wanted:
        if key not in spec.params:
            raise SpecError(f"{key!r} is no parameter of the model {spec.name!r}")
        if spec.params[key].dtype.name != "float32":
            raise SpecError(f"{key!r} is {spec.params[key].dtype}; weights as inputs are float32")
    tape = GraphTape(spec.name, spec.params)
    for i in spec.inputs:
        tape.input(i.name, i.shape, i.dtype, i.example)
    given = {key: tape.input(key, spec.params[key].shape) for key in wanted}
    made: dict[str, Value] = {i.name: tape[i.name] for i in spec.inputs}
    lacking: list[str] = []
    stats: dict[str, Value] = {}
    for node in spec.nodes:
        inputs = [made[name] for name in node.inputs]
        if training and node.op == "dropout" and node.attrs["p"]:
            made[node.name] = inputs[0] * _noise(spec, tape, node.name, inputs[0].shape)
            continue
        if training and node.op == "batch_norm":
            tape.layer = node.name
            values = {r: given[key] if key in given else tape.stored(key) for r, key in node.params.items()}
            stats[node.name] = inputs[0].op("batch_stats")
            made[node.name] = _by_batch(inputs[0], stats[node.name], values, node.attrs["eps"])
            continue
        if given.keys().isdisjoint(node.params.values()):
            made[node.name] = tape.node(node, inputs)
            continue
        tape.layer = node.name
        params = {role: given.get(key, key) for role, key in node.params.items()}
        try:
            made[node.name] = tape.put(node.op, inputs, params, **node.attrs)
        except UnsupportedError as e:
            lacking.append(f"layer {node.name!r}: {e}")
            made[node.name] = tape.node(node, inputs)
    if lacking:
        raise UnsupportedError("; ".join(lacking))
    outputs = [*(made[name].name for name in spec.outputs), *(value.name for value in stats.values())]
    return tape.build(outputs, [*spec.labels, *(f"stats/{name}" for name in stats)])


def _by_batch(x: Value, stats: Value, params: Mapping[str, Value], eps: float) -> Value:
    affine = [params[role] for role in ("weight", "bias") if role in params]
    if "bias" in params and "weight" not in params:
        return x.op("batch_norm_given", stats, eps=eps, own=True) + params["bias"].reshape(*wide(x))
    return x.op("batch_norm_given", stats, *affine, eps=eps, own=True)


def _noise(spec: ModelSpec, tape: GraphTape, layer: str, shape: Sequence[int]) -> Value:
    """The input that a dropout multiplies by: as many images as the model's first input has, if free."""
    batch, free = spec.inputs[0].example[:1], spec.inputs[0].shape[:1]
    if any(isinstance(d, str) for i in spec.inputs for d in i.shape) and tuple(shape[:1]) != batch:
        raise UnsupportedError(f"layer {layer!r}: its value {list(shape)} has no axis 0 of {batch[0]} images")
    return tape.input(f"noise/{layer}", (*free, *shape[1:]), example=shape)
