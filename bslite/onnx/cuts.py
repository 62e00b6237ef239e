"""`Cuts`: where a graph is cut into pieces, as runs find out what prevents one piece."""

import math
import threading
import warnings
from collections.abc import Iterable, Mapping, Set
from typing import Any

from bslite.errors import IntegerRangeError
from bslite.frontends.onnx.control import passes
from bslite.frontends.onnx.inputs import has_open_sizes
from bslite.frontends.onnx.read import NotConverted
from bslite.frontends.onnx.sorting import subgraphs
from bslite.frontends.onnx.values import Const
from bslite.onnx.control import CONTROL
from bslite.onnx.graph import Graph
from bslite.onnx.host import FIRST, HOST, LAST, key_of
from bslite.onnx.kinds import kind
from bslite.onnx.pieces import ALONE, ENGINE, EVALUATED, Piece, cut, steady
from bslite.onnx.wide import beyond
from bslite.spec import Array

SMALL = 64  # integers of an input that a piece may be specialised on the values of
#: Operators that move data, so that their results are the same bits wherever they run.
MOVES = frozenset(
    ("Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Pad", "Reshape",
     "Shape", "Size", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze")
)  # fmt: skip


class Cuts:
    """The pieces of a graph, which change when one turns out to be none.

    ``fallback``: see `bslite.onnx.running.Options`. ``repeats``: the graph is run over and over, all that it
    takes being new each time.
    """

    def __init__(self, graph: Graph, fallback: str, repeats: bool) -> None:
        self.graph, self.fallback, self.repeats = graph, fallback, repeats
        self.lock = threading.RLock()
        self.reasons: dict[int, str] = {}  # why a node is a piece of its own
        self._open = has_open_sizes(graph.source)
        self._alone: dict[int, str] = {}
        self._late: set[int] = set()
        #: What is the same in every step.
        self.steady: frozenset[int] = steady(graph) if repeats else frozenset()
        self.pieces = self._cut()

    def _cut(self) -> list[Piece]:
        return cut(self.graph, self._alone, self._late, self.steady - self._alone.keys())

    def whole(self, piece: Piece) -> bool:
        """Whether it is all of a model, as it is in the file."""
        uncut = self.graph.around is None and not self._alone and not self._late
        return uncut and self.graph.tensors == set(piece.inputs) == set(self.graph.takes)

    def wants(self, piece: Piece) -> Any:
        """What tells a piece which inputs to build in, where nodes need values; none: the piece is cut."""

        def wants(error: NotConverted, given: Mapping[str, Array]) -> frozenset[str]:
            names: set[str] = set()
            for place, roots in self._causes(piece, error).items():
                if roots is None or not self._builds_in(piece, place, roots, given):
                    return frozenset()
                names |= roots
            return frozenset(names)

        return wants

    def _causes(self, piece: Piece, error: NotConverted) -> dict[int, frozenset[str] | None]:
        """Place in the graph -> the inputs whose values are needed there. -1: a constant."""
        return self._by_place(piece, error.causes)

    def _by_place(self, piece: Piece, found: Mapping[int, Any]) -> dict[int, Any]:
        """Something by place in the piece's model, by place in the graph; -1 for that of constants."""
        if self.whole(piece):
            return dict(found)
        start, count = self.start(piece), len(piece.places)
        return {
            piece.places[i - start] if start <= i < start + count else -1: what for i, what in found.items()
        }

    def start(self, piece: Piece) -> int:
        """How many nodes of constants stand before those of a piece."""
        return len(self.makers(piece)[0])

    def makers(self, piece: Piece) -> tuple[list[Any], dict[str, Const]]:
        """The nodes of constants that a piece reads, and its initialisers."""
        read = {r for i in piece.places for r in self.graph.reads[i]}
        return self.graph.makers(sorted(read - set(piece.inputs)))

    def _builds_in(self, piece: Piece, place: int, roots: frozenset[str], given: Mapping[str, Array]) -> bool:
        """Whether the piece is to be specialised on the values that a node needs."""
        if place >= 0 and self.graph.nodes[place].op_type in FIRST:
            return False
        return all(
            r in piece.forced
            or (math.prod(given[r].shape) <= SMALL and kind(given[r])[0] in "biu" and not self._changes(r))
            for r in roots
        )

    def _changes(self, name: str) -> bool:
        """Whether an input is likely to be another each time."""
        return self.repeats and name not in self.graph.captures

    def settle(self, piece: Piece, error: NotConverted, values: Mapping[str, Any]) -> None:
        """Cut the graph so that ``piece`` is none any more. ``error``, if that would not help."""
        with self.lock:
            if piece not in self.pieces:
                return  # another thread was quicker
            if piece.refused:
                raise error
            given = {name: values[name] for name in piece.inputs}
            evaluated = 0
            changed = False
            for place, roots in self._causes(piece, error).items():
                if roots is not None and self._builds_in(piece, place, roots, given):
                    continue
                how = self._cure(place, roots)
                if how is None:
                    raise error
                changed = True
                evaluated += how == EVALUATED
                if how == ENGINE:
                    self._late.add(place)
                else:
                    self._alone[place] = how
                    self.reasons[place] = self._by_place(piece, error.reasons).get(place, "")
                self.graph.doubt(place)
            if not changed:
                raise error
            self.pieces = self._cut()
        if evaluated and self.fallback == "warn":
            warnings.warn(f"{error}\nONNX's reference evaluator runs these", UserWarning, stacklevel=6)

    def widen(self, piece: Piece, error: IntegerRangeError, values: Mapping[str, Any]) -> None:
        """Run in NumPy what meets integers that the engine has not. ``error``, if that cannot be."""
        with self.lock:
            if piece not in self.pieces:
                return  # another thread was quicker
            found = beyond(self.graph, piece, error, values) if piece.how == ENGINE else set[int]()
            nodes = [self.graph.nodes[i] for i in found]
            if not found or not all(key_of(n) in HOST or n.op_type in CONTROL for n in nodes):
                raise error
            self._alone |= dict.fromkeys(found, ALONE)
            self.reasons |= dict.fromkeys(found, "integers beyond 32 bits, or beyond their type")
            self.pieces = self._cut()

    def cures(self, error: NotConverted) -> bool:
        """Whether every node that a conversion of the whole graph lacks can run in a piece of its own."""
        found = error.causes.items()
        return bool(found) and all(self._cure(place, roots) is not None for place, roots in found)

    def _cure(self, place: int, roots: frozenset[str] | None) -> str | None:
        """How a node that cannot be converted is to run: `ENGINE` in a later piece; None if it cannot."""
        if place < 0:
            return None
        node = self.graph.nodes[place]
        plain = node.domain in ("", "ai.onnx")
        if plain and node.op_type in CONTROL:
            return ALONE
        by_host = key_of(node) in HOST and (roots is None or key_of(node) not in LAST)
        if by_host and (key_of(node) in FIRST or roots is None or self.repeats or place in self._late):
            return ALONE
        if roots is not None and place not in self._late:
            return ENGINE
        return EVALUATED if self.fallback != "error" else None

    def outgrown(self, piece: Piece, names: Set[str]) -> None:
        """Run in NumPy what moves values ``names`` of ``piece``, whose sizes change from step to step.

        A list that grows would have a plan for each length. What computes with such values stays as it is.
        """
        with self.lock:
            moved = {i for i in piece.places if self.graph.reads[i] & names}
            if piece in self.pieces and all(key_of(self.graph.nodes[i]) in MOVES for i in moved):
                self._alone |= dict.fromkeys(moved, ALONE)
                self.reasons |= dict.fromkeys(moved, "the size of a value that it reads keeps changing")
                self.pieces = self._cut()

    def step_by_step(self, piece: Piece, models: Iterable[Any], most: int) -> bool:
        """Run those loops of ``piece`` step by step of which its ``models`` hold more than ``most`` nodes for
        several numbers of steps. Whether there are any.
        """
        written: dict[int, dict[int, int]] = {}
        for model in (m for m in models if m.loops):
            for place, (steps, nodes) in self._by_place(piece, model.loops).items():
                written.setdefault(place, {})[steps] = nodes
        loops = [i for i, each in written.items() if i >= 0 and len(each) > 1 and sum(each.values()) > most]
        with self.lock:
            if not loops or piece not in self.pieces:
                return False
            self._alone |= dict.fromkeys(loops, ALONE)
            self.reasons |= dict.fromkeys(loops, "its number of steps keeps changing")
            for place in loops:
                self.graph.doubt(place)
            self.pieces = self._cut()
            return True

    def limited(self, piece: Piece) -> frozenset[int]:
        """The places, in the model of ``piece``, of loops whose number of steps may be another for other
        sizes; a Scan's is taken for one.
        """
        if not self._open or not any(self._varies(self.graph.nodes[i]) for i in piece.places):
            return frozenset()
        start = self.start(piece)
        own = piece.places if self.whole(piece) else range(start, start + len(piece.places))
        places = zip(piece.places, own, strict=True)
        return frozenset(at for i, at in places if self._varies(self.graph.nodes[i]))

    def _varies(self, node: Any) -> bool:
        """Whether it is a loop whose number of steps may be computed from sizes."""
        if node.domain not in ("", "ai.onnx") or node.op_type not in ("Loop", "Scan"):
            return False
        if node.op_type == "Scan":
            return True
        count, condition = (*node.input, "", "")[:2]
        ends = bool(condition) and not any(map(passes, subgraphs(node)))
        return ends or not self.graph.is_constant(count)

    def loosen(self, piece: Piece) -> None:
        """Run in NumPy what can be, of the nodes for whose values ``piece`` was specialised too often."""
        with self.lock:
            keys = {i: key_of(self.graph.nodes[i]) for i in piece.places if i in self._late}
            moved = {i for i, key in keys.items() if key in HOST and key not in LAST}
            if moved and piece in self.pieces:
                self._alone |= dict.fromkeys(moved, ALONE)
                self.reasons |= dict.fromkeys(moved, "a value that it needs keeps changing")
                self._late -= moved
                self.pieces = self._cut()
