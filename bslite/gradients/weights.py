"""Parameters as inputs: what a step of training takes, and gives back changed."""

from collections.abc import Sequence

from bslite.errors import SpecError, UnsupportedError
from bslite.gradients.tape import GraphTape, learnt
from bslite.ops.values import Value
from bslite.spec import ModelSpec


def weights_as_inputs(spec: ModelSpec, keys: Sequence[str] | None = None) -> ModelSpec:
    """The model with the parameters ``keys`` as inputs of the same names, after its own.

    ``keys``: parameters of float32, all that can be learnt if None; ``running_mean`` and ``running_var`` of a
    batch norm may be among them. Every run packs them for the kernels, as constants are packed once; a
    convolution or a linear layer makes the same bits. A norm becomes a few nodes.

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
    for node in spec.nodes:
        inputs = [made[name] for name in node.inputs]
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
    return tape.build([made[name].name for name in spec.outputs], spec.labels)
