"""Every value that an engine makes against the references, which advance beside it."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from bslite.spec import Array, ModelSpec, Node
from bslite.verification.checks import Check, check
from bslite.verification.engine import CPU, Engine


def outputs_pass(spec: ModelSpec, inputs: list[Array], engine: Engine = CPU) -> bool:
    """Whether every output passes, of the engine run normally, without keeping values, for checked inputs."""
    made = dict(zip(spec.outputs, engine.run(spec, inputs), strict=True))
    return all(
        check(node.name, node.op, made[node.name], exact, single).passed
        for node, exact, single in _references(spec, inputs)
        if node.name in made
    )


def check_layers(
    spec: ModelSpec,
    inputs: list[Array],
    engine: Engine,
    theirs: Mapping[str, Array],
    kept: dict[str, tuple[Array, Array]] | None = None,
    on_layer: Callable[[str], None] | None = None,
) -> list[Check]:
    """A check of every value the engine makes, in the order of the layers, for checked inputs.

    ``theirs``: torch's values in float32, by layer, where there are some. The references' values of the
    model's outputs are put into ``kept``. Engine and references advance together. What the engine makes ahead
    of the model's order waits its turn; what it makes behind is met in another pass over the references.
    Values that passes make are none of the model's.
    """
    order = {node.name: index for index, node in enumerate(spec.nodes)}
    values = ((name, made) for name, made in engine.trace(spec, inputs) if name in order)
    waiting: dict[str, Array] = {}
    checks: list[Check] = []
    reached = -1

    def meet(node: Node, exact: Array, single: Array) -> None:
        if node.name in waiting:
            got = waiting.pop(node.name)
            checks.append(check(node.name, node.op, got, exact, single, theirs.get(node.name)))

    for index, (node, exact, single) in enumerate(_references(spec, inputs)):
        if on_layer:
            on_layer(node.name)
        if kept is not None and node.name in spec.outputs:
            kept[node.name] = exact, single
        while reached < index and (made := next(values, None)) is not None:
            waiting[made[0]] = made[1]
            reached = order[made[0]]
        meet(node, exact, single)
    waiting.update(values)
    if waiting:
        for reference in _references(spec, inputs):
            meet(*reference)
    return sorted(checks, key=lambda c: order[c.name])


def _references(spec: ModelSpec, inputs: list[Array]) -> Iterator[tuple[Node, Array, Array]]:
    """Each layer's value in float64 and in float32, side by side; of a model in bfloat16 each of the latter
    is rounded to that.
    """
    from bslite.reference import layers

    double = layers(spec, inputs, np.float64)
    single = layers(spec, inputs, np.float32, rounded=spec.unrounded is not None)
    for (node, exact), (_, near) in zip(double, single, strict=True):
        yield node, exact, near
