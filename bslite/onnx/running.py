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

import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bslite.errors import IntegerRangeError, SpecError, UnsupportedError
from bslite.frontends.common.unsupported import Unsupported
from bslite.frontends.onnx.inputs import graph_inputs
from bslite.frontends.onnx.read import NotConverted
from bslite.frontends.onnx.tensors import dtype_name
from bslite.onnx.control import CONTROL
from bslite.onnx.cuts import Cuts
from bslite.onnx.evaluated import Evaluated
from bslite.onnx.graph import Graph
from bslite.onnx.host import HostNode
from bslite.onnx.kinds import kind, refusal
from bslite.onnx.met import Met
from bslite.onnx.part import part_of
from bslite.onnx.pieces import ENGINE, EVALUATED, Piece
from bslite.onnx.rep import BsliteRep, Specialised, Wants
from bslite.onnx.small import SmallNodes, few_floats, small
from bslite.onnx.watch import WATCH
from bslite.ops import DTYPES
from bslite.spec import Array

MOST_GROWTH = 2  # steps after which a size that changes in each of them is taken to go on so
MOST_WRITTEN = 2000  # nodes of a loop in models for several numbers of steps, before it runs step by step
MOST_VALUES = 4  # of a piece's inputs that it is specialised on, before nodes run in NumPy instead


@dataclass(frozen=True)
class Options:
    """How pieces run. ``fallback``: "error", or "warn" or "silent" for ONNX's evaluator."""

    backend: str = "cpu"
    threads: int | None = None
    fallback: str = "error"


class Values(dict[str, Any]):
    """Values by name during a run; a constant is looked up when it is first read."""

    def __init__(self, given: Any, constant: Callable[[str], Any]) -> None:
        super().__init__(given)
        self._constant = constant

    def __missing__(self, name: str) -> Any:
        made = self[name] = self._constant(name)
        return made


class Running:
    """A graph ready to run. ``repeats``: it is run over and over, all that it takes being new each time."""

    def __init__(self, graph: Graph, options: Options, repeats: bool = False) -> None:
        self.graph, self.options = graph, options
        self._cuts = Cuts(graph, options.fallback, repeats)
        self._exact = options.backend == "reference64"
        #: Inputs that are float64 anyway.
        self._wide = {
            n for n, v in graph.inputs().items() if dtype_name(v.type.tensor_type.elem_type) == "float64"
        }
        self._reps: dict[tuple[Piece, bool, tuple[str, ...], bool], BsliteRep | SmallNodes] = {}
        self._hosts: dict[int, Any] = {}
        self._read: dict[str, Any] = {}  # the constants that runs have read, by name
        self._count = 0  # of runs
        self._only: BsliteRep | None = None  # what runs it, or ran it before it was cut, as one piece
        self.met = Met()

    @functools.cached_property
    def _dtypes(self) -> tuple[str, ...]:
        """Those of the graph's inputs, as it declares them."""
        return tuple(i.dtype for i in graph_inputs(self.graph.source))

    @property
    def pieces(self) -> list[Piece]:
        """The pieces in order, so far as they are known."""
        return self._cuts.pieces

    @property
    def cut(self) -> bool:
        """Whether it is known not to run as one piece. What is cut stays so."""
        return len(self.pieces) != 1 or not self._cuts.whole(self.pieces[0])

    @property
    def plain(self) -> bool:
        """Whether it is one piece of the engine's, in which nothing is the same in every step."""
        return [piece.how for piece in self.pieces] == [ENGINE] and not self._cuts.steady

    @property
    def operations(self) -> int:
        """Those of its largest model so far."""
        return max((model.operations() for model in self.specialised()), default=0)

    def run(self, given: Mapping[str, Any]) -> list[Any]:
        """The outputs in order, for the values that the graph takes and captures."""
        values = Values({**self._read, **given}, self._constant)
        self._count += 1
        self._through(values)
        return [values[name] if name else None for name in self.graph.outputs]

    def before(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values that a repeated graph captures, with those that are the same in every step."""
        values = Values(given, self._constant)
        if self._cuts.steady:
            self._through(values, self._cuts.steady)
        return values

    def _through(self, values: "Values", within: frozenset[int] | None = None) -> None:
        """Add what the pieces make to ``values``; those alone that are ``within`` some places, if given."""
        watch = WATCH.get()
        while True:
            at = None
            try:
                for piece in self._cuts.pieces:
                    if within is not None and not within.issuperset(piece.places):
                        continue
                    at = piece
                    if piece.outputs[0] in values and all(o in values for o in piece.outputs):
                        continue
                    if watch is None:
                        self.execute(piece, values)
                    else:
                        watch.run(self, piece, values)
            except NotConverted as e:
                assert at is not None
                self._cuts.settle(at, e, values)
            except IntegerRangeError as e:
                assert at is not None
                self._cuts.widen(at, e, values)
                self._only = None
            else:
                return

    def again(self, given: Sequence[Any]) -> list[Any] | None:
        """The outputs for arrays in order, of kinds that it has run before; None if there is more to do."""
        try:
            return self._again(given)
        except IntegerRangeError:  # the graph is to be cut
            return None

    def _again(self, given: Sequence[Any]) -> list[Any] | None:
        if (only := self._only) is not None:
            known = only.again(given)
            if known is not None or not self.cut:
                return known
        if given not in self.met:
            return None
        lone = self.met.lone(self.pieces, self._hosts, self.graph)
        if lone is not None and lone.silent:
            return list(lone.on(given))
        with np.errstate(all="ignore"):  # of nodes in NumPy
            values = Values(self._read, self._constant)
            values.update(zip(self.graph.takes, given, strict=True))
            for run, names in self.met.steps(self.pieces, self._hosts, self._outputs_of):
                if (made := run(values)) is None:
                    self._through(values)
                    break
                values.update(zip(names, made, strict=False))
            return [values[name] if name else None for name in self.graph.outputs]

    def _outputs_of(self, place: int) -> Sequence[str]:
        return tuple(self.graph.nodes[place].output)

    def whole(self) -> BsliteRep:
        """What specialises the model as one piece, also on tensors. UnsupportedError if it is cut."""
        if self.cut:
            raise UnsupportedError(f"model {self.graph.source.name!r} runs in several pieces")
        (piece,) = self.pieces
        with self._cuts.lock:
            key = piece, True, self._dtypes, False
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
            return "NumPy, on a few numbers" if in_numpy else "engine", f"{len(piece.places)} nodes", ""
        (i,) = piece.places
        how = "ONNX's evaluator" if piece.how == EVALUATED else "NumPy"
        control = self.graph.nodes[i].op_type in CONTROL
        return "control flow" if control else how, self.graph.place(i), self._cuts.reasons.get(i, "")

    def forget(self) -> None:
        """Drop the models that are kept."""
        for rep in self._reps.values():
            rep.forget()
        self._hosts.clear()
        self.met = Met()

    def _constant(self, name: str) -> Any:
        """A constant by name."""
        if not self.graph.is_constant(name):
            raise SpecError(f"{self.graph.label}the value {name!r} is neither an input nor made by a node")
        if name not in self._read:
            if (stored := self.graph.stored(name)) is not None:
                self._read[name] = stored.data
            else:
                nodes, constants = self.graph.makers([name])
                (self._read[name],) = self._rep_of(nodes, constants, {}, (name,)).run({})
        return self._read[name]

    def _known(self, name: str) -> Any:
        """A constant by name; None of what is no constant."""
        return self._constant(name) if self.graph.is_constant(name) else None

    def execute(self, piece: Piece, values: "Values") -> None:
        """Add what ``piece`` makes to ``values``."""
        if piece.how != ENGINE:
            (i,) = piece.places
            host = self._hosts.get(i) or self._host(i, piece.how)
            for name, made in zip(self.graph.nodes[i].output, host(values), strict=False):
                if name:
                    values[name] = made
            return
        last = piece.ready.get("last")
        made = None if last is None else last.again([values[name] for name in piece.inputs])
        if made is None:
            self._executed(piece, values)
        else:
            values.update(zip(piece.outputs, made, strict=True))

    def _executed(self, piece: Piece, values: "Values") -> None:
        """As `execute`, of the engine's piece that has not run on values of such kinds before."""
        rep, given = self.ready(piece, values)
        whole = piece.ready["whole"]
        values.update(zip(self.graph.outputs if whole else piece.outputs, rep.run(given), strict=True))
        if isinstance(rep, BsliteRep):
            self._only = rep if whole else self._only
            if len(rep.kept()) > 1:
                self._written(piece, rep)
        if not whole and not self._exact:
            piece.ready["last"] = rep
            if self._cuts.repeats and (grown := self._growing(piece, given)):
                self._cuts.outgrown(piece, grown)
        if piece.forced and len(rep.kept()) > MOST_VALUES:
            self._cuts.loosen(piece)

    def _written(self, piece: Piece, rep: BsliteRep) -> None:
        """Have loops run step by step from now on if too much was written out for numbers of steps that
        change. What was is kept, for inputs of those numbers.
        """
        if self._cuts.step_by_step(piece, rep.kept(), MOST_WRITTEN):
            with self._cuts.lock:
                gone = [key for key, r in self._reps.items() if key[0] == piece and r is not self._only]
                for key in gone:
                    del self._reps[key]

    def _growing(self, piece: Piece, given: Mapping[str, Any]) -> set[str]:
        """The values whose shapes have changed in each of the last steps, all of them new to the piece."""
        now = {name: (x.shape, 0) for name, x in given.items() if name not in self.graph.captures}
        run, before = piece.ready.get("shapes", (0, {}))
        if run == self._count - 1:
            for name, (shape, _) in now.items():
                old, times = before.get(name, (shape, 0))
                now[name] = shape, 0 if old == shape else times + 1
        piece.ready["shapes"] = self._count, now
        return {name for name, (_, times) in now.items() if times > MOST_GROWTH}

    def ready(self, piece: Piece, values: "Values") -> tuple["BsliteRep | SmallNodes", dict[str, Any]]:
        """What runs a piece of the engine's, and the values that it takes, by name."""
        if not piece.ready:
            piece.ready.setdefault("whole", self._cuts.whole(piece))
        whole = piece.ready["whole"]
        given = {name: values[name] for name in (self.graph.takes if whole else piece.inputs)}
        dtypes = tuple(itertools.starmap(self._kind, given.items()))
        key: Any = piece, whole, dtypes, not whole and few_floats(given.values())
        rep = piece.ready.get(key[2:])
        if rep is None:
            if not set(dtypes) <= set(DTYPES):
                self._refuse_dtypes(piece, given)
            with self._cuts.lock:
                if key not in self._reps:
                    self._reps[key] = self._rep(piece, given)
                rep = piece.ready[key[2:]] = self._reps[key]
        return rep, given

    def _host(self, i: int, how: str) -> Any:
        """What runs a node that is a piece of its own."""
        with self._cuts.lock:
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
        options = self.options
        return HostNode(self.graph, node, self._exact, options.threads, options.backend == "cpu")

    def _inner(self, proto: Any, label: str, repeats: bool) -> "Running":
        """A graph inside one of the nodes."""
        inner = Graph(self.graph.source, proto, self.graph, self.graph.label + label)
        return Running(inner, self.options, repeats)

    def _rep(self, piece: Piece, given: Mapping[str, Array]) -> "BsliteRep | SmallNodes":
        options, limited = self.options, self._cuts.limited(piece)
        if self._cuts.whole(piece):
            return BsliteRep(
                self.graph.source, options.backend, options.threads, self._cuts.wants(piece), limited
            )
        makers, stored = self._cuts.makers(piece)
        nodes = [*makers, *(self.graph.nodes[i] for i in piece.places)]
        if small(nodes[len(makers) :], given, self._known):
            read = {name for node in nodes[len(makers) :] for name in node.input if name}
            known = {name: x for name in read if (x := self._known(name)) is not None}
            return SmallNodes(self.graph, nodes[len(makers) :], piece.inputs, piece.outputs, known)
        return self._rep_of(nodes, stored, given, piece.outputs, self._cuts.wants(piece), limited)

    def _rep_of(
        self, nodes: Sequence[Any], stored: Mapping[str, Any], given: Mapping[str, Array],
        outputs: Sequence[str], wants: Wants | None = None, limited: Collection[int] = (),
    ) -> BsliteRep:  # fmt: skip
        kinds = {n: self._kind(n, x) for n, x in given.items()}
        part = part_of(self.graph, nodes, stored, kinds, outputs)
        return BsliteRep(part, self.options.backend, self.options.threads, wants, limited)

    def _refuse_dtypes(self, piece: Piece, given: Mapping[str, Any]) -> None:
        """Let nodes that read what the engine has no dtype for run by themselves."""
        odd = {n: self._kind(n, x) for n, x in given.items() if self._kind(n, x) not in DTYPES}
        whole = self._cuts.whole(piece)
        numbered = enumerate(piece.places, 0 if whole else self._cuts.start(piece))
        raise refusal(self.graph, odd, {i if whole else k: self.graph.reads[i] for k, i in numbered})

    def cures(self, error: NotConverted) -> bool:
        """Whether every node that a conversion of the whole graph lacks can run in a piece of its own."""
        return self._cuts.cures(error)

    def _kind(self, name: str, value: Any) -> str:
        """As `kind`; what is computed in float64 instead of float32 is float32."""
        found = kind(value)
        return "float32" if self._exact and found == "float64" and name not in self._wide else found
