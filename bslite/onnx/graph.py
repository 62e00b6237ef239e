"""`Graph`: an ONNX graph to be run in pieces, a model's own or one inside of a node."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bslite.errors import SpecError
from bslite.frontends.onnx.file import Source
from bslite.frontends.onnx.ops import find
from bslite.frontends.onnx.sorting import subgraphs
from bslite.frontends.onnx.tensors import to_array
from bslite.frontends.onnx.values import Const
from bslite.frontends.onnx.walk import name_of


def outside(node: Any) -> set[str]:
    """Names of the values that a node reads, those that its graphs read from around it included."""
    names = set(node.input)
    for graph in subgraphs(node):
        names |= captured(graph)
    return names - {""}


def captured(graph: Any) -> set[str]:
    """Names of the values that a graph reads and neither takes, holds nor makes."""
    own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    names: set[str] = set()
    for node in graph.node:
        names |= outside(node) - own
        own.update(node.output)
    return names | ({o.name for o in graph.output} - own)


class Graph:
    """What is read and made where, and which values are constants.

    A constant is an initialiser, of this graph or one around it, or what nodes make of such. Pieces of the
    graph hold the constants that they read, so that no piece takes one as an input.
    """

    def __init__(self, source: Source, proto: Any, around: "Graph | None" = None, label: str = "") -> None:
        self.source, self.proto, self.around, self.label = source, proto, around, label
        self.nodes: Sequence[Any] = list(proto.node)
        self.holds = {t.name: t for t in proto.initializer}
        if proto.sparse_initializer:
            raise SpecError(f"graph {label!r} has sparse initialisers, which bslite does not read")
        self.takes = [v.name for v in proto.input if v.name not in self.holds]
        #: Inputs that are declared to be tensors, not sequences or optional.
        self.tensors = {
            v.name for v in proto.input
            if v.name not in self.holds and v.type.WhichOneof("value") == "tensor_type"
        }  # fmt: skip
        self.outputs = [o.name for o in proto.output]
        self._read: dict[str, Const] = {}
        self.reads = [outside(n) for n in self.nodes]
        self.made: dict[str, int] = {}
        for i, node in enumerate(self.nodes):
            for out in node.output:
                if out and out in self.made:
                    raise SpecError(f"{label}the value {out!r} is made twice")
                self.made[out] = i
        self.own = {*self.takes, *self.holds, *self.made}
        free = captured(proto)
        if free and around is None:
            raise SpecError(
                f"{', '.join(map(repr, sorted(free)))}: neither an input nor made by an earlier node"
            )
        self.captures = sorted(n for n in free if around and not around.is_constant(n))
        #: Nodes that read nothing but constants.
        self.constant: set[int] = set()
        for i, node in enumerate(self.nodes):
            opset = source.opsets.get("", 0)
            foldable = node.domain in ("", "ai.onnx") and find(node.op_type, opset) is not None
            if foldable and not list(subgraphs(node)) and all(map(self.is_constant, self.reads[i])):
                self.constant.add(i)

    def place(self, i: int) -> str:
        """What messages call a node."""
        node = self.nodes[i]
        return f"node {self.label + name_of(node)!r} ({node.op_type})"

    def is_constant(self, name: str) -> bool:
        """Whether a value depends on no input."""
        if name in self.holds:
            return True
        if name in self.made:
            return self.made[name] in self.constant
        return name not in self.own and self.around is not None and self.around.is_constant(name)

    def doubt(self, place: int) -> None:
        """Take a node, and those that read what it makes, for none that makes constants."""
        doubted = {place}
        for i in range(place, len(self.nodes)):
            if any(self.made.get(r) in doubted for r in self.reads[i]):
                doubted.add(i)
        self.constant -= doubted

    def stored(self, name: str) -> Const | None:
        """The initialiser called ``name`` that this graph sees; None if there is none."""
        if name not in self.own:
            return None if self.around is None else self.around.stored(name)
        if name in self.holds and name not in self._read:
            array = to_array(self.holds[name], self.source.folder, "initialiser")
            self._read[name] = Const(array, name)
        return self._read.get(name)

    def makers(self, names: Iterable[str]) -> tuple[list[Any], dict[str, Const]]:
        """The nodes that make the constants among ``names``, in order, and the initialisers they read."""
        nodes: dict[int, Any] = {}
        stored: dict[str, Const] = {}
        for name in names:
            self._maker(name, nodes, stored)
        return list(nodes.values()), stored

    def _maker(self, name: str, nodes: dict[int, Any], stored: dict[str, Const]) -> None:
        if name not in self.own:
            if self.around is not None:
                self.around._maker(name, nodes, stored)
        elif name in self.holds:
            found = self.stored(name)
            assert found is not None
            stored[name] = found
        elif name in self.made and self.made[name] in self.constant:
            node = self.nodes[self.made[name]]
            if id(node) not in nodes:
                for read in sorted(outside(node)):
                    self._maker(read, nodes, stored)
                nodes[id(node)] = node

    def inputs(self) -> Mapping[str, Any]:
        """The declarations of the inputs by name."""
        return {v.name: v for v in self.proto.input}
