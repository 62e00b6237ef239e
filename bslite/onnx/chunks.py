"""Steps of a Loop or Scan written out, some at a time: a graph that holds the same loop with so many steps.

It has one plan, whatever the number of steps is, and one call of the engine for all of its steps.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bslite.frontends.common.lazy import load_onnx
from bslite.frontends.onnx.sorting import nodes_within

STEPS, LEAST = 16, 4  # at a time
MOST_NODES = 512  # of all steps at a time: a call of more of them costs little beside what it computes
OWN = "bslite/"  # begins the names that are none of the model's


def steps_at_once(body: Any) -> int:
    """How many steps of a ``body`` to write out; 0 if it is too large for any."""
    steps = min(STEPS, MOST_NODES // (1 + nodes_within(body)))
    return steps if steps >= LEAST else 0


def passes(body: Any) -> bool:
    """Whether the ``body`` of a Loop gives back the condition that it took."""
    through = {n.output[0]: n.input[0] for n in body.node if n.op_type == "Identity" and not n.domain}
    made = body.output[0].name
    while made in through:
        made = through[made]
    return bool(made == body.input[1].name)


def of_loop(body: Any, steps: int) -> Any:
    """A graph that takes the number of its first step and the states, and gives the states and the values to
    be stacked of so many steps.
    """
    onnx = load_onnx()
    inner = onnx.GraphProto()
    inner.CopyFrom(body)
    number, start = inner.input[0].name, f"{OWN}start"
    inner.input[0].name = f"{OWN}step"
    del inner.node[:]
    inner.node.append(onnx.helper.make_node("Add", [inner.input[0].name, start], [number]))
    inner.node.extend(body.node)
    first = onnx.helper.make_tensor_value_info(start, onnx.TensorProto.INT64, [])
    count = onnx.numpy_helper.from_array(np.array(steps, np.int64), f"{OWN}steps")
    taken = _renamed(body.input[2:], "in")
    given = _renamed(body.output[1:], "out")
    node = onnx.helper.make_node(
        "Loop", [count.name, "", *(v.name for v in taken)], [v.name for v in given], body=inner
    )
    return onnx.helper.make_graph([node], f"{body.name} {steps} times", [first, *taken], given, [count])


def of_scan(body: Any, sequences: int) -> Any:
    """A graph that takes the states and so many slices of the ``sequences``, along axis 0, and gives the
    states and the values to be stacked.
    """
    onnx = load_onnx()
    taken, given = _renamed(body.input, "in"), _renamed(body.output, "out")
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
        copy.name = f"{OWN}{what} {i}"
        copy.type.tensor_type.ClearField("shape")
        made.append(copy)
    return made
