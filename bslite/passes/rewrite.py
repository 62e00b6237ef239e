"""Rewriting a ModelSpec by dropping nodes: the readers of a dropped node read what stands in for it."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from bslite.spec import Array, ModelSpec, Node


def readers(spec: ModelSpec) -> dict[str, list[Node]]:
    """Value name -> the nodes that read it, in order (a node that reads it twice is there twice)."""
    found: dict[str, list[Node]] = {}
    for node in spec.nodes:
        for name in node.inputs:
            found.setdefault(name, []).append(node)
    return found


def other_input(node: Node, name: str) -> str:
    """The operand of a node of two that is not ``name``."""
    return node.inputs[1] if node.inputs[0] == name else node.inputs[0]


def needed(nodes: Sequence[Node], outputs: Iterable[str]) -> list[Node]:
    """The nodes that ``outputs`` depend on, in order."""
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if node.name in wanted:
            wanted.update(node.inputs)
            kept.append(node)
    return kept[::-1]


def params_of(nodes: Iterable[Node], params: Mapping[str, Array]) -> dict[str, Array]:
    """The parameters that ``nodes`` read."""
    used = {key for node in nodes for key in node.params.values()}
    return {key: array for key, array in params.items() if key in used}


def substitute(
    spec: ModelSpec, dropped: Mapping[str, str], replaced: Mapping[str, Node], params: Mapping[str, Array]
) -> ModelSpec:
    """``spec`` without the nodes in ``dropped`` (name -> the value read instead), others ``replaced``."""

    def resolve(name: str) -> str:
        while name in dropped:
            name = dropped[name]
        return name

    nodes = []
    for node in spec.nodes:
        if node.name in dropped:
            continue
        node = replaced.get(node.name, node)
        nodes.append(dataclasses.replace(node, inputs=tuple(map(resolve, node.inputs))))
    return spec.replace(
        nodes=tuple(nodes),
        outputs=tuple(map(resolve, spec.outputs)),
        params=params_of(nodes, {**spec.params, **params}),
    )
