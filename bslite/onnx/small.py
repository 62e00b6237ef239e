"""Few nodes on a few integers, between others that run by themselves: NumPy computes them at once.

A call of the engine costs more than all of them, and a step of a loop may have several such pieces: counters,
conditions, sizes. The operators are those whose results are the same integers wherever they are computed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bslite.onnx.graph import Graph
from bslite.onnx.host import HOST, HostNode
from bslite.onnx.host.node import key_of
from bslite.onnx.rep import Specialised
from bslite.spec import Array

MOST_NODES = 16
MOST_ELEMENTS = 64  # of a value that comes in
MOST_KNOWN = 256  # inputs whose results are kept
EXACT = frozenset(
    ("Abs", "Add", "And", "Cast", "Concat", "Equal", "Expand", "Gather", "Greater", "GreaterOrEqual",
     "Identity", "Less", "LessOrEqual", "Max", "Min", "Mul", "Neg", "Not", "Or", "Range", "ReduceMax",
     "ReduceMin", "Reshape", "Shape", "Size", "Slice", "Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze",
     "Where", "Xor")
)  # fmt: skip


def small(nodes: Sequence[Any], given: Mapping[str, Any]) -> bool:
    """Whether the nodes of a piece, for such inputs, are better run in NumPy."""
    return (
        len(nodes) <= MOST_NODES
        and all(not n.domain and n.op_type in EXACT and key_of(n) in HOST for n in nodes)
        and all(
            hasattr(x, "dtype") and x.dtype.kind in "biu" and x.size <= MOST_ELEMENTS for x in given.values()
        )
    )


class SmallNodes:
    """The nodes of a piece, run in NumPy one by one; what they read of ``constants`` is known.

    They make the same of the same few integers, so results are kept: conditions and counters come again.
    """

    def __init__(
        self, graph: Graph, nodes: Sequence[Any], inputs: Sequence[str], outputs: Sequence[str],
        constants: Mapping[str, Array],
    ) -> None:  # fmt: skip
        self._nodes = [HostNode(graph, node) for node in nodes]
        self._inputs, self._outputs, self._constants = inputs, outputs, constants
        self._known: dict[Any, list[Any]] = {}

    def run(self, given: Mapping[str, Any]) -> list[Any]:
        """The piece's outputs. InputError where a node does not take the values."""
        return self._run({**self._constants, **given})

    def again(self, given: Sequence[Any]) -> list[Any]:
        """The same for values in the order of the piece's inputs."""
        if any(x.size > MOST_ELEMENTS for x in given):
            return self._made(given)
        key = tuple([(x.tobytes(), x.shape) for x in given])
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = self._made(given)
        return [y.copy() for y in found]  # the caller may write into them

    def _made(self, given: Sequence[Any]) -> list[Any]:
        return self._run({**self._constants, **dict(zip(self._inputs, given, strict=True))})

    def _run(self, values: dict[str, Any]) -> list[Any]:
        for host in self._nodes:
            values.update(zip(host.outputs, host(values), strict=False))
        return [values[name] for name in self._outputs]

    def kept(self) -> list[Specialised]:
        """No models."""
        return []

    def forget(self) -> None:
        """Drop the results that are kept."""
        self._known.clear()
