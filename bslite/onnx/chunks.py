"""Steps of a Loop or Scan written out, some at a time: a graph that holds the same loop with so many steps.

It has one plan, whatever the number of steps is, and one call of the engine for all of its steps.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.onnx.sorting import subgraphs

STEPS, LEAST = 16, 4  # at a time
MOST_NODES = 512  # that are written out of a loop: more take longer to plan than many calls


def steps_at_once(operations: int) -> int:
    """How many steps of a body of so many operations to write out; 0 if it is too large for any."""
    steps = min(STEPS, MOST_NODES // max(1, operations))
    return steps if steps >= LEAST else 0


def _prefix(body: Any) -> str:
    """What begins no name that ``body`` holds or reads."""
    names, found = set(_names(body)), "steps/"
    while any(name.startswith(found) for name in names):
        found = f"_{found}"
    return found


def _names(graph: Any) -> Iterator[str]:
    """The names of values in a graph, and in those inside of it."""
    yield from (value.name for value in (*graph.input, *graph.output, *graph.initializer))
    for node in graph.node:
        yield from (*node.input, *node.output)
        for inner in subgraphs(node):
            yield from _names(inner)


def of_loop(body: Any, steps: int) -> Any:
    """A graph that takes the number of its first step and the states, and gives the states and the values to
    be stacked of so many steps.
    """
    onnx, own = load_onnx(), _prefix(body)
    inner = onnx.GraphProto()
    inner.CopyFrom(body)
    number, start = inner.input[0].name, f"{own}start"
    inner.input[0].name = f"{own}step"
    del inner.node[:]
    inner.node.append(onnx.helper.make_node("Add", [inner.input[0].name, start], [number]))
    inner.node.extend(body.node)
    first = onnx.helper.make_tensor_value_info(start, onnx.TensorProto.INT64, [])
    count = onnx.numpy_helper.from_array(np.array(steps, np.int64), f"{own}steps")
    taken = _renamed(body.input[2:], f"{own}in")
    given = _renamed(body.output[1:], f"{own}out")
    node = onnx.helper.make_node(
        "Loop", [count.name, "", *(v.name for v in taken)], [v.name for v in given], body=inner
    )
    return onnx.helper.make_graph([node], f"{body.name} {steps} times", [first, *taken], given, [count])


def of_scan(body: Any, sequences: int) -> Any:
    """A graph that takes the states and so many slices of the ``sequences``, along axis 0, and gives the
    states and the values to be stacked.
    """
    onnx, own = load_onnx(), _prefix(body)
    taken, given = _renamed(body.input, f"{own}in"), _renamed(body.output, f"{own}out")
    node = onnx.helper.make_node(
        "Scan", [v.name for v in taken], [v.name for v in given], body=body, num_scan_inputs=sequences
    )
    return onnx.helper.make_graph([node], f"{body.name} in slices", taken, given)


def _renamed(values: Sequence[Any], what: str) -> list[Any]:
    """Declarations of values under names of their own, without the sizes."""
    onnx = load_onnx()
    made = []
    for i, value in enumerate(values):
        copy = onnx.ValueInfoProto()
        copy.CopyFrom(value)
        copy.name = f"{what} {i}"
        copy.type.tensor_type.ClearField("shape")
        made.append(copy)
    return made
