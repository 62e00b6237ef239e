"""Few nodes on a few numbers, between others that run by themselves: NumPy computes them at once.

A call of the engine costs more than all of them, and a step of a loop may have several such pieces: counters,
conditions, sizes. Behind an ensemble of trees, exporters rename, scale or reshape its answers. The operators
are those whose results are the same bits wherever they are computed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bslite.onnx.graph import Graph
from bslite.onnx.host import HOST, HostNode
from bslite.onnx.host.node import key_of
from bslite.onnx.rep import Specialised
from bslite.spec import Array

MOST_NODES = 16
MOST_MOVES = 6  # nodes, where there are floats
MOST_ELEMENTS = 64  # of a value that comes in
MOST_FLOATS = 4096  # and where there are floats
MOST_KNOWN = 256  # inputs whose results are kept
EXACT = frozenset(
    ("Abs", "Add", "And", "Cast", "Concat", "Equal", "Expand", "Gather", "Greater", "GreaterOrEqual",
     "Identity", "Less", "LessOrEqual", "Max", "Min", "Mul", "Neg", "Not", "Or", "Range", "ReduceMax",
     "ReduceMin", "Reshape", "Shape", "Size", "Slice", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze",
     "Where", "Xor")
)  # fmt: skip
MOVES = frozenset(("Concat", "Identity", "Reshape"))
ROUNDED = frozenset(("Add", "Mul", "Sub"))


def small(nodes: Sequence[Any], given: Mapping[str, Any], constant: Callable[[str], Any]) -> bool:
    """Whether the nodes of a piece, for such inputs, are better run in NumPy. ``constant``: a value that the
    nodes read and that is not given, by name; None of one that they make.
    """
    if any(n.domain or n.op_type not in EXACT or key_of(n) not in HOST for n in nodes):
        return False
    if few_floats(given.values()):
        return len(nodes) <= MOST_MOVES and _same_bits(nodes, given, constant)
    return len(nodes) <= MOST_NODES and all(
        hasattr(x, "dtype") and x.dtype.kind in "biu" and x.size <= MOST_ELEMENTS for x in given.values()
    )


def few_floats(given: Iterable[Any]) -> bool:
    """Whether values are few numbers, some of them float32, the others integers."""
    found = False
    for x in given:
        dtype = getattr(x, "dtype", None)
        if dtype is None or x.size > MOST_FLOATS or not (dtype == np.float32 or dtype.kind in "biu"):
            return False
        found |= dtype.kind == "f"
    return found


def _same_bits(nodes: Sequence[Any], given: Mapping[str, Any], constant: Callable[[str], Any]) -> bool:
    """Whether floats are moved only, or rounded once: two operations, the engine might round together."""
    floats, rounded = {name for name, x in given.items() if x.dtype.kind == "f"}, 0
    for node in nodes:
        for name in node.input:
            if name and name not in given and getattr(constant(name), "dtype", np.dtype(int)).kind == "f":
                floats.add(name)
        if floats.isdisjoint(node.input) or node.op_type in ("Shape", "Size"):
            continue
        floats.update(node.output)
        rounded += node.op_type in ROUNDED
        if node.op_type not in MOVES and (node.op_type not in ROUNDED or rounded > 1):
            return False
    return True


class SmallNodes:
    """The nodes of a piece, run in NumPy one by one; what they read of ``constants`` is known.

    They make the same of the same few integers, so results are kept: conditions and counters come again.
    """

    def __init__(
        self, graph: Graph, nodes: Sequence[Any], inputs: Sequence[str], outputs: Sequence[str],
        constants: Mapping[str, Array],
    ) -> None:  # fmt: skip
        places = {name: i for i, name in enumerate(("", *constants, *inputs))}
        self._constants = [None, *constants.values()]
        #: Nodes with the places of what they read; what they make has the next.
        self._steps: list[tuple[HostNode, list[int]]] = []
        for node in nodes:
            host = HostNode(graph, node)
            if node.op_type == "Identity":
                places[host.outputs[0]] = places[host.inputs[0]]
                continue
            places[host.outputs[0]] = len(self._constants) + len(inputs) + len(self._steps)
            self._steps.append((host, [places[name] for name in host.inputs]))
        self._inputs, self._outputs = inputs, [places[name] for name in outputs]
        self._known: dict[Any, list[Any]] = {}

    def run(self, given: Mapping[str, Any]) -> list[Any]:
        """The piece's outputs. InputError where a node does not take the values."""
        return self._made([given[name] for name in self._inputs])

    def again(self, given: Sequence[Any]) -> list[Any] | None:
        """The same for values in the order of the piece's inputs; None for more floats than a few."""
        few = True
        for x in given:
            if x.dtype.kind == "f":
                return self._made(given) if few_floats(given) else None
            few &= x.size <= MOST_ELEMENTS
        if not few:
            return self._made(given)
        key = tuple([(x.tobytes(), x.shape) for x in given])
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = self._made(given)
        return [y.copy() for y in found]  # the caller may write into them

    def _made(self, given: Sequence[Any]) -> list[Any]:
        values = [*self._constants, *given]
        for host, places in self._steps:
            values.append(host.on([values[i] for i in places])[0])
        made: list[Any] = []
        for place in self._outputs:  # in no one's memory but their own
            y = values[place]
            shared = y.base is not None or any(y is x for x in (*self._constants, *given, *made))
            made.append(y.copy() if shared else y)
        return made

    def kept(self) -> list[Specialised]:
        """No models."""
        return []

    def forget(self) -> None:
        """Drop the results that are kept."""
        self._known.clear()
