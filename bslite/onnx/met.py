"""The kinds of inputs that a model in pieces has run before: those are not looked at again.

A call of a model that NumPy computes takes microseconds, less than it takes to check its inputs.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from bslite.onnx.graph import Graph
from bslite.onnx.host.node import HostNode
from bslite.onnx.pieces import ENGINE, Piece

MOST_MET = 256  # kinds of inputs that are known

#: What runs a piece of a run's values, None for what has more to do, and the names of what it makes.
Step = tuple[Callable[[Mapping[str, Any]], Sequence[Any] | None], Sequence[str]]


class Met:
    """Shapes and dtypes of arrays that ran, all that there is to check of them having been checked."""

    def __init__(self) -> None:
        self._kinds: set[Any] = set()
        self._pieces: Any = None
        self._steps: list[Step] = []
        self._lone: tuple[Any, HostNode | None] = None, None

    def note(self, given: Sequence[Any]) -> None:
        """Arrays of these kinds have run."""
        if (kind := _kind(given)) is not None:
            if len(self._kinds) >= MOST_MET:
                self._kinds.clear()
            self._kinds.add(kind)

    def steps(
        self, pieces: Sequence[Piece], by_place: Mapping[int, Any], outputs: Callable[[int], Sequence[str]]
    ) -> list[Step]:
        """What runs ``pieces`` in order. ``by_place``: what runs nodes that are a piece each."""
        if pieces is not self._pieces:
            made: list[Step] = []
            for piece in pieces:
                if piece.how == ENGINE:
                    made.append((partial(_again, piece), piece.outputs))
                else:
                    (i,) = piece.places
                    made.append((by_place.get(i, _nothing), tuple(outputs(i))))
            self._pieces, self._steps = pieces, made
        return self._steps

    def lone(self, pieces: Sequence[Piece], by_place: Mapping[int, Any], graph: Graph) -> HostNode | None:
        """The one node of a graph, if it reads what the graph takes and makes what it gives, in order."""
        if pieces is not self._lone[0]:
            host = by_place.get(pieces[0].places[0]) if len(pieces) == 1 else None
            ports = tuple(graph.takes), tuple(graph.outputs)
            plain = isinstance(host, HostNode) and (host.inputs, host.outputs) == ports
            self._lone = pieces, host if plain else None
        return self._lone[1]

    def __contains__(self, given: Sequence[Any]) -> bool:
        return bool(self._kinds) and _kind(given) in self._kinds


def _kind(given: Sequence[Any]) -> Any:
    """What tells arrays apart that are checked anew; None if something is no array."""
    for x in given:
        if type(x) is not np.ndarray:
            return None
    return tuple([(x.shape, x.dtype) for x in given])


def _again(piece: Piece, values: Mapping[str, Any]) -> Any:
    """What a piece of the engine's makes of values of kinds that it ran on last."""
    last = piece.ready.get("last")
    return None if last is None else last.again([values[name] for name in piece.inputs])


def _nothing(values: Mapping[str, Any]) -> None:
    """Of a node that has not run so far."""
