"""Integers that the engine has not: beyond 32 bits, or beyond their dtype, where ONNX's wrap around.

Sequences of no steps are found the same way. The engine says so, and nothing before it had to be looked at.
NumPy computes such nodes from then on, in the width that the file says.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import numpy as np

from bslite.errors import IntegerRangeError
from bslite.frontends.onnx.sorting import subgraphs
from bslite.frontends.onnx.walk import name_of
from bslite.onnx.graph import Graph
from bslite.onnx.pieces import Piece

LEAST, MOST = -(2**31), 2**31 - 1
#: Operators whose results are as wide as the numbers that they read. Of those that are not here (a Mod, a
#: comparison) results mostly fit again; what reads one that does not is found by its values.
CARRY = frozenset(
    ("Abs", "Add", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Concat", "CumSum", "Expand", "Flatten",
     "Identity", "Max", "Min", "Mul", "Neg", "Pow", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum",
     "Reshape", "Slice", "Squeeze", "Sub", "Sum", "Tile", "Transpose", "Unsqueeze", "Where")
)  # fmt: skip
#: Operators that NumPy takes sequences of no steps for.
RECURRENT = ("GRU", "LSTM", "RNN")


def is_wide(value: Any) -> bool:
    """Whether an array has an integer that does not fit the engine's 32 bits."""
    if getattr(value, "dtype", None) != np.int64 or not value.size:
        return False
    return bool(value.min() < LEAST or value.max() > MOST)


def beyond(graph: Graph, piece: Piece, error: IntegerRangeError, values: Mapping[str, Any]) -> Set[int]:
    """The nodes of ``piece``, by place, that meet integers which the engine has not; none if they are not
    known.
    """
    read = {name for i in piece.places for name in graph.reads[i]}
    wide = {name for name in read if name in piece.inputs or graph.is_constant(name)}
    wide = {name for name in wide if is_wide(values[name])}
    found = set(_made(graph, piece.places, error.layer))
    if error.number and any(graph.nodes[i].op_type in RECURRENT for i in found):
        return set()  # a length that is wrong anywhere
    for i in piece.places:  # in an order in which they can run
        if graph.reads[i] & wide:
            found.add(i)
            if graph.nodes[i].op_type in CARRY and not graph.nodes[i].domain:
                wide.update(graph.nodes[i].output)
    return found


def _made(graph: Graph, places: Iterable[int], layer: str) -> list[int]:
    """The node that a layer was made of: layers are named after their nodes, with something behind it."""
    fits = {
        i: max((len(n) for n in _names(graph.nodes[i], graph.label) if _begins(layer, n)), default=0)
        for i in places
    }
    return [i for i in fits if fits[i] and fits[i] == max(fits.values())][-1:]


def _names(node: Any, label: str) -> Iterator[str]:
    """What layers of a node, and of the graphs in it, may be named after."""
    yield label + name_of(node)
    for inner in subgraphs(node):
        for one in inner.node:
            yield from _names(one, label)


def _begins(layer: str, name: str) -> bool:
    return layer == name or layer.startswith((f"{name}.", f"{name}#", f"{name}/"))
