"""`Running`: a graph that runs, in as few pieces as its values allow.

What the engine can compute of the shapes alone is one piece, specialised on shapes by `BsliteRep`. The first
run finds out where the graph has to be cut:

* A node whose graphs cannot be written out (an If on a computed condition, a Loop or Scan of many or unknown
  steps) runs here, see `bslite.onnx.control`; so does one whose result's size depends on values, see
  `bslite.onnx.host`.
* A node that needs the value of something computed (the shape of a Reshape) begins a piece, which is
  specialised on that value.
* What the engine has not (an operator, a form of it, a type of values) runs in NumPy where `bslite.onnx.host`
  knows it: `said` names these nodes with the reasons. What that lacks too is an error, or is left to ONNX's
  reference evaluator where the caller wants that.

A branch or body is such a graph itself, with the values around it as inputs, made when it is first taken.
"""

import itertools
import math
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bslite.errors import SpecError, UnsupportedError
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.inputs import graph_inputs
from bslite.frontends.onnx.read import NotConverted
from bslite.frontends.onnx.tensors import dtype_name
from bslite.frontends.onnx.values import Const
from bslite.onnx.control import CONTROL
from bslite.onnx.evaluated import Evaluated
from bslite.onnx.graph import Graph
from bslite.onnx.host import FIRST, HOST, HostNode, key_of
from bslite.onnx.kinds import kind, refusal
from bslite.onnx.part import part_of
from bslite.onnx.pieces import ALONE, ENGINE, EVALUATED, Piece, cut, steady
from bslite.onnx.rep import BsliteRep, Specialised, Wants
from bslite.onnx.small import SmallNodes, small
from bslite.onnx.watch import WATCH
from bslite.ops import DTYPES
from bslite.spec import Array

MOST_VALUES = 4  # of a piece's inputs that it is specialised on, before nodes run in NumPy instead
SMALL = 64  # integers of an input that a piece may be specialised on the values of


@dataclass(frozen=True)
class Options:
    """How pieces run. ``fallback``: "error", or "warn" or "silent" for ONNX's evaluator."""

    backend: str = "cpu"
    threads: int | None = None
    fallback: str = "error"


class Running:
    """A graph ready to run. ``repeats``: it is run over and over, all that it takes being new each time."""

    def __init__(self, graph: Graph, options: Options, repeats: bool = False) -> None:
        self.graph, self.options, self.repeats = graph, options, repeats
        self._alone: dict[int, str] = {}
        self._reasons: dict[int, str] = {}  # why a node is a piece of its own
        self._exact = options.backend == "reference64"
        #: Inputs that are float64 anyway.
        self._wide = {
            n for n, v in graph.inputs().items() if dtype_name(v.type.tensor_type.elem_type) == "float64"
        }
        self._late: set[int] = set()
        self._reps: dict[tuple[Piece, bool, tuple[str, ...]], BsliteRep | SmallNodes] = {}
        self._hosts: dict[int, Any] = {}
        self._folded: dict[str, Array] = {}
        self._only: BsliteRep | None = None  # what has run last, as long as it is the only piece
        self._lock = threading.RLock()
        self._steady: frozenset[int] = steady(graph) if repeats else frozenset()
        self.pieces = self._cut()

    def _cut(self) -> list[Piece]:
        return cut(self.graph, self._alone, self._late, self._steady - self._alone.keys())

    def run(self, given: Mapping[str, Any]) -> list[Any]:
        """The outputs in order, for the values that the graph takes and captures."""
        values = dict(given)
        self._through(values)
        return [self._value(values, name) for name in self.graph.outputs]

    def before(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values that a repeated graph captures, with those that are the same in every step."""
        values = dict(given)
        if self._steady:
            self._through(values, self._steady)
        return values

    def _through(self, values: dict[str, Any], within: frozenset[int] | None = None) -> None:
        """Add what the pieces make to ``values``; those alone that are ``within`` some places, if given."""
        watch = WATCH.get()
        while True:
            at = None
            try:
                for piece in self.pieces:
                    if within is not None and not within.issuperset(piece.places):
                        continue
                    at = piece
                    if all(o in values for o in piece.outputs):
                        continue
                    if watch is None:
                        self.execute(piece, values)
                    else:
                        watch.run(self, piece, values)
            except NotConverted as e:
                assert at is not None
                self._settle(at, e, values)
            else:
                return

    def again(self, given: Sequence[Any]) -> list[Any] | None:
        """The outputs for arrays in order, of kinds that it has run before, if it is all of a model in one
        piece; None if there is more to do.
        """
        return None if self._only is None else self._only.again(given)

    def whole(self) -> BsliteRep:
        """What specialises the model as one piece, also on tensors. UnsupportedError if it is cut."""
        piece = self.pieces[0] if self.pieces else None
        if piece is None or len(self.pieces) > 1 or not self._whole(piece):
            raise UnsupportedError(
                f"model {self.graph.source.name!r} runs in several pieces: it computes sizes or conditions "
                "from values: run it by bslite.compile"
            )
        dtypes = tuple(i.dtype for i in graph_inputs(self.graph.source))
        with self._lock:
            key = piece, True, dtypes
            if key not in self._reps:
                self._reps[key] = self._rep(piece, {})
            found = self._reps[key]
            assert isinstance(found, BsliteRep)  # a whole model is never taken for a few nodes
            return found

    def specialised(self) -> Iterator[Specialised]:
        """The models that are kept, those of branches and bodies too."""
        for rep in self._reps.values():
            yield from rep.kept()
        for node in self._hosts.values():
            for inner in node.inside():
                yield from inner.specialised()

    def said(self) -> Iterator[str]:
        """Lines on how the graph runs: its pieces in order, so far as they are known."""
        for piece in self.pieces:
            how, what, reason = self.described(piece)
            yield f"{how}: {what}: {reason}" if piece.refused else f"{how}: {what}"
            if piece.refused and piece.places[0] in self._hosts:
                for inner in self._hosts[piece.places[0]].inside():
                    yield from (f"  {line}" for line in inner.said())

    def described(self, piece: Piece) -> tuple[str, str, str]:
        """What computes a piece, which nodes it has, and why it is one of its own."""
        if piece.how == ENGINE:
            in_numpy = any(isinstance(rep, SmallNodes) for rep in piece.ready.values())
            return "NumPy, on a few integers" if in_numpy else "engine", f"{len(piece.places)} nodes", ""
        (i,) = piece.places
        how = "ONNX's evaluator" if piece.how == EVALUATED else "NumPy"
        control = self.graph.nodes[i].op_type in CONTROL
        return "control flow" if control else how, self.graph.place(i), self._reasons.get(i, "")

    def forget(self) -> None:
        """Drop the models that are kept."""
        for rep in self._reps.values():
            rep.forget()
        self._hosts.clear()

    def _value(self, values: Mapping[str, Any], name: str) -> Any:
        """A value by name, constants included; None for one left out."""
        if not name:
            return None
        if name in values:
            return values[name]
        if not self.graph.is_constant(name):
            raise SpecError(f"{self.graph.label}the value {name!r} is neither an input nor made by a node")
        if (stored := self.graph.stored(name)) is not None:
            return stored.data
        if name not in self._folded:
            nodes, constants = self.graph.makers([name])
            (self._folded[name],) = self._rep_of(nodes, constants, {}, (name,)).run({})
        return self._folded[name]

    def execute(self, piece: Piece, values: dict[str, Any]) -> None:
        """Add what ``piece`` makes to ``values``."""
        if piece.how != ENGINE:
            (i,) = piece.places
            node = self.graph.nodes[i]
            reads = self.graph.reads[i] if piece.how == EVALUATED else {*piece.inputs, *node.input} - {""}
            given = {name: self._value(values, name) for name in reads}
            made = self._host(i, piece.how)(given)
            values.update((o, y) for o, y in zip(node.output, made, strict=False) if o)
            return
        rep, given = self.ready(piece, values)
        whole = piece.ready["whole"]
        self._only = rep if whole and len(self.pieces) == 1 and isinstance(rep, BsliteRep) else None
        values.update(zip(self.graph.outputs if whole else piece.outputs, rep.run(given), strict=True))
        if piece.forced and len(rep.kept()) > MOST_VALUES:
            self._loosen(piece)

    def ready(
        self, piece: Piece, values: Mapping[str, Any]
    ) -> tuple["BsliteRep | SmallNodes", dict[str, Any]]:
        """What runs a piece of the engine's, and the values that it takes, by name."""
        if not piece.ready:
            piece.ready.setdefault("whole", self._whole(piece))
        whole = piece.ready["whole"]
        given = {name: self._value(values, name) for name in (self.graph.takes if whole else piece.inputs)}
        dtypes = tuple(itertools.starmap(self._kind, given.items()))
        rep = piece.ready.get(dtypes)
        if rep is None:
            if not set(dtypes) <= set(DTYPES):
                self._refuse_dtypes(piece, given)
            key = piece, whole, dtypes
            with self._lock:
                if key not in self._reps:
                    self._reps[key] = self._rep(piece, given)
                rep = piece.ready[dtypes] = self._reps[key]
        return rep, given

    def _host(self, i: int, how: str) -> Any:
        """What runs a node that is a piece of its own."""
        with self._lock:
            if i not in self._hosts:
                try:
                    self._hosts[i] = self._made(self.graph.nodes[i], how)
                except Unsupported as e:
                    raise UnsupportedError(f"{self.graph.place(i)}: {e}") from None
                except SpecError as e:
                    raise SpecError(f"{self.graph.place(i)}: {e}") from None
            return self._hosts[i]

    def _made(self, node: Any, how: str) -> Any:
        if how == EVALUATED:
            return Evaluated(self.graph, node)
        if node.op_type in CONTROL:
            return CONTROL[node.op_type](self.graph, node, self._inner)
        return HostNode(self.graph, node, self._exact)

    def _loosen(self, piece: Piece) -> None:
        """Run in NumPy what can be, of the nodes for whose values ``piece`` was specialised too often."""
        with self._lock:
            moved = {i for i in piece.places if i in self._late and key_of(self.graph.nodes[i]) in HOST}
            if moved and piece in self.pieces:
                self._alone |= dict.fromkeys(moved, ALONE)
                self._reasons |= dict.fromkeys(moved, "a value that it needs keeps changing")
                self._late -= moved
                self.pieces = self._cut()

    def _inner(self, proto: Any, label: str, repeats: bool) -> "Running":
        """A graph inside one of the nodes."""
        inner = Graph(self.graph.source, proto, self.graph, self.graph.label + label)
        return Running(inner, self.options, repeats)

    def _rep(self, piece: Piece, given: Mapping[str, Array]) -> "BsliteRep | SmallNodes":
        options = self.options
        if self._whole(piece):
            return BsliteRep(self.graph.source, options.backend, options.threads, self._wants(piece))
        makers, stored = self._makers(piece)
        nodes = [*makers, *(self.graph.nodes[i] for i in piece.places)]
        if small(nodes[len(makers) :], given):
            read = {name for node in nodes[len(makers) :] for name in node.input if name}
            known = {name: self._value({}, name) for name in read if self.graph.is_constant(name)}
            return SmallNodes(self.graph, nodes[len(makers) :], piece.outputs, known)
        return self._rep_of(nodes, stored, given, piece.outputs, self._wants(piece))

    def _whole(self, piece: Piece) -> bool:
        """Whether it is all of a model, as it is in the file."""
        uncut = self.graph.around is None and not self._alone and not self._late
        return uncut and self.graph.tensors == set(piece.inputs) == set(self.graph.takes)

    def _rep_of(
        self, nodes: Sequence[Any], stored: Mapping[str, Any], given: Mapping[str, Array],
        outputs: Sequence[str], wants: Wants | None = None,
    ) -> BsliteRep:  # fmt: skip
        kinds = {n: self._kind(n, x) for n, x in given.items()}
        part = part_of(self.graph, nodes, stored, kinds, outputs)
        return BsliteRep(part, self.options.backend, self.options.threads, wants)

    def _wants(self, piece: Piece) -> Any:
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
        if self._whole(piece):
            return dict(found)
        start, count = self._start(piece), len(piece.places)
        return {
            piece.places[i - start] if start <= i < start + count else -1: what for i, what in found.items()
        }

    def _start(self, piece: Piece) -> int:
        """How many nodes of constants stand before those of a piece."""
        return len(self._makers(piece)[0])

    def _makers(self, piece: Piece) -> tuple[list[Any], dict[str, Const]]:
        """The nodes of constants that a piece reads, and its initialisers."""
        read = {r for i in piece.places for r in self.graph.reads[i]}
        return self.graph.makers(sorted(read - set(piece.inputs)))

    def _builds_in(self, piece: Piece, place: int, roots: frozenset[str], given: Mapping[str, Array]) -> bool:
        """Whether the piece is to be specialised on the values that a node needs."""
        if place >= 0 and self.graph.nodes[place].op_type in FIRST:
            return False
        return all(
            r in piece.forced
            or (
                math.prod(given[r].shape) <= SMALL
                and self._kind(r, given[r])[0] in "biu"
                and not self._changes(r)
            )
            for r in roots
        )

    def _changes(self, name: str) -> bool:
        """Whether an input is likely to be another each time."""
        return self.repeats and name not in self.graph.captures

    def _settle(self, piece: Piece, error: NotConverted, values: Mapping[str, Any]) -> None:
        """Cut the graph so that ``piece`` is none any more. ``error``, if that would not help."""
        with self._lock:
            if piece not in self.pieces:
                return  # another thread was quicker
            if piece.refused:
                raise error
            given = {name: self._value(values, name) for name in piece.inputs}
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
                    self._reasons[place] = self._by_place(piece, error.reasons).get(place, "")
                self.graph.doubt(place)
            if not changed:
                raise error
            self.pieces = self._cut()
        if evaluated and self.options.fallback == "warn":
            warnings.warn(f"{error}\nONNX's reference evaluator runs these", UserWarning, stacklevel=5)

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
        by_host = key_of(node) in HOST
        if by_host and (key_of(node) in FIRST or roots is None or self.repeats or place in self._late):
            return ALONE
        if roots is not None and place not in self._late:
            return ENGINE
        return EVALUATED if self.options.fallback != "error" else None

    def _refuse_dtypes(self, piece: Piece, given: Mapping[str, Any]) -> None:
        """Let nodes that read what the engine has no dtype for run by themselves."""
        odd = {n: self._kind(n, x) for n, x in given.items() if self._kind(n, x) not in DTYPES}
        whole = self._whole(piece)
        numbered = enumerate(piece.places, 0 if whole else self._start(piece))
        raise refusal(self.graph, odd, {i if whole else k: self.graph.reads[i] for k, i in numbered})

    def _kind(self, name: str, value: Any) -> str:
        """As `kind`; what is computed in float64 instead of float32 is float32."""
        found = kind(value)
        return "float32" if self._exact and found == "float64" and name not in self._wide else found
