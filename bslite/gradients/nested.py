"""Concatenations that hold earlier ones: their gradients are then added once, not piece by piece."""

from dataclasses import replace

from bslite.spec import ModelSpec, Node


def nested(spec: ModelSpec) -> ModelSpec:
    """The model whose concatenations take an earlier one for the first of their inputs that it joins.

    Each layer of a DenseNet reads all that the layers before it made. Its gradient goes back to every one of
    them; by way of the concatenation before, it goes back at once.
    """
    nodes: list[Node] = []
    seen: dict[tuple[int, tuple[str, ...]], str] = {}
    for node in spec.nodes:
        if node.op == "concat":
            axis, inputs = node.attrs["axis"], node.inputs
            longest = next((n for n in range(len(inputs) - 1, 1, -1) if (axis, inputs[:n]) in seen), 0)
            seen.setdefault((axis, inputs), node.name)
            if longest:
                node = replace(node, inputs=(seen[axis, inputs[:longest]], *inputs[longest:]))
        nodes.append(node)
    return spec.replace(nodes=tuple(nodes)) if tuple(nodes) != spec.nodes else spec
