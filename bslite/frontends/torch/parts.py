"""Parts of an exported graph: which nodes bslite has ops for, and the model that some of them make.

`from_torch` wants all of a graph or nothing. What runs a module partly in torch asks `Survey` which nodes
could be built, chooses sets of them, and builds a ModelSpec from each with `PartWalk`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bslite.errors import BsliteError, SpecError
from bslite.frontends.common.problems import report
from bslite.frontends.common.values import Value
from bslite.frontends.torch.export import FEW, MISSING, Walk
from bslite.frontends.torch.graph import Graph, is_empty, is_getitem
from bslite.frontends.torch.names import call_of
from bslite.frontends.torch.ops.index import expanded
from bslite.frontends.torch.sizes import numbers
from bslite.frontends.torch.values import DTYPES, Const, concrete, dims, kept_as
from bslite.spec import ModelSpec

if TYPE_CHECKING:
    import torch

    Node = torch.fx.Node


@dataclass(frozen=True)
class Refusal:
    """One operation that has to stay in torch: its name, the module it is called in, and why."""

    operation: str
    layer: str
    reason: str
    grows: bool = False  # because of a size, not of what it computes
    varies: bool = False  # because a size is free; with a number in its place it may be built

    @property
    def what(self) -> str:
        """The operation, and the form of it that is not known."""
        return f"{self.operation}: {self.reason}" if self.reason else self.operation


class _OutsideWalk(Walk):
    """A walk in which a value may come from outside: it is then an input of the model."""

    def __init__(
        self,
        graph: Graph,
        module: "torch.nn.Module",
        name: str,
        tensors: "Mapping[str, torch.Tensor] | None" = None,
    ) -> None:
        super().__init__(graph, module, name)
        self._live_tensors = tensors or {}
        self._targets = {s.arg.name: s.target for s in graph.program.graph_signature.input_specs}

    def _stored(self, key: str) -> "torch.Tensor":
        """The tensor that the module has under that name now, perhaps another than at export."""
        tensor = self._live_tensors.get(key)
        return super()._stored(key) if tensor is None else tensor

    def _constant_placeholder(self, node: "Node") -> Const:
        key = self._targets[node.name]
        return Const(self._stored(key), key)

    def _declare(self, node: "Node") -> Value:
        """The tensor that ``node`` makes, as an input. SpecError where bslite has no such values."""
        value = node.meta["val"]
        dtype = kept_as(value)
        if dtype not in DTYPES:
            raise SpecError(f"takes {dtype}; bslite has {', '.join(DTYPES)}")
        shape = dims(value)
        declared = [d if isinstance(d, int) else self._name(d) for d in shape]
        example = concrete(shape, self._probes[0])
        return self.store.input(node.name, shape, declared, example, dtype)


class Survey(_OutsideWalk):
    """Tries to build every node on its own; a node that cannot be built becomes an input.

    ``buildable``: the nodes that a part may hold. ``refused``: the operations that stay in torch.
    ``supported``: the ops that may be used, if not all. ``growing``: symbols of sizes that are others at
    every call; what has such a size stays in torch.
    """

    def __init__(
        self, graph: Graph, module: "torch.nn.Module", name: str, supported: frozenset[str] | None = None,
        growing: frozenset[Any] = frozenset(),
    ) -> None:  # fmt: skip
        super().__init__(graph, module, name)
        self._supported, self._growing = supported, growing
        whole = numbers(self._claims, FEW) is not None
        self._empty = frozenset[Any]().union(*(() if whole else (e.free_symbols for e in self._claims)))
        self.refused: dict[Node, Refusal] = {}
        self.buildable: set[Node] = set()
        self._foreign: dict[Node, str] = {}  # nodes whose values cannot enter a part, and why
        operations = set(graph.operations())
        for node in graph.nodes:
            if node.op == "output" or node not in graph.live:
                continue
            self.results[node] = self._survey(node, node in operations)

    def _survey(self, node: "Node", operation: bool) -> Any:
        if node in self.graph.stored:
            return self._constant_placeholder(node)
        if node.op == "placeholder":
            return self._from_outside(node)
        if not operation:
            return self._constant(node) if node in self.graph.constant else node.meta.get("val")
        if is_getitem(node) and node.args[0] in self.refused:
            return self._from_outside(node)
        if any(_sized_by(n, self._growing) for n in (node, *node.all_input_nodes)):
            return self._problem(node, "its size grows from call to call", grows=True)
        if any(_sized_by(n, self._empty) for n in (node, *node.all_input_nodes)):
            return self._problem(node, "values decide its sizes, and none above zero were found")
        foreign = [self._foreign[n] for n in node.all_input_nodes if n in self._foreign]
        if foreign:
            return self._problem(node, foreign[0])
        made = len(self.store.builder.nodes)
        try:
            result = self._visit(node)
        except (BsliteError, OverflowError) as e:
            return self._problem(node, str(e))
        used = {n.op for n in self.store.builder.nodes[made:]}
        if self._supported is not None and not used <= self._supported:
            return self._problem(node, f"no GPU kernel for {', '.join(sorted(used - self._supported))}")
        if node not in self.refused:
            self.buildable.add(node)
        return result

    def _constant(self, node: "Node") -> Any:
        """The value of a constant. If torch cannot compute it here, the nodes that need it stay in torch."""
        if any(a in self._foreign for a in node.all_input_nodes):
            self._foreign[node] = "reads a constant that cannot be computed beforehand"
            return MISSING
        try:
            return self._visit(node)
        except Exception as e:
            self._foreign[node] = f"reads a constant that cannot be computed beforehand ({e})"
            return MISSING

    def _problem(
        self, node: "Node", reason: str = "", *, varies: bool = False, grows: bool = False
    ) -> object:
        self.refused[node] = Refusal(str(node.target), call_of(node).path, reason, grows, varies)
        return self._from_outside(node)

    def _from_outside(self, node: "Node") -> Any:
        """What stands for the result of a node that runs in torch."""
        value = node.meta.get("val")
        if not hasattr(value, "dtype"):
            return value  # results of several are declared where they are picked
        if is_empty(node):
            self._foreign[node] = f"what it reads is empty: {list(dims(node.meta['val']))}"
            return MISSING
        try:
            return self._declare(node)
        except BsliteError as e:
            self._foreign[node] = str(e)
            return MISSING


class PartWalk(_OutsideWalk):
    """Builds the model of some nodes of a graph."""

    def build(
        self,
        nodes: "Iterable[Node]",
        inputs: "Sequence[Node]",
        outputs: "Sequence[Node]",
        shares: ModelSpec | None = None,
    ) -> ModelSpec:
        """A model that takes the values of ``inputs`` and makes those of ``outputs``, in these orders.

        ``nodes``: what it computes, in the graph's order. Parameters are read from the module as they are
        now. ``shares``: a model with some of them, from which the engine takes what it packed.
        """
        chosen = set(nodes)
        needed = self._needed(chosen)
        for node in inputs:
            self.results[node] = self._declare(node)
        for node in self.graph.nodes:
            if node in self.results or node not in needed:
                continue
            if node in self.graph.stored:
                self.results[node] = self._constant_placeholder(node)
            elif node in chosen or node in self.graph.constant:
                self.results[node] = self._visit(node)
            else:
                self.results[node] = node.meta.get("val")
        if self.problems:
            raise SpecError(report(self.store.builder.name, self.problems))
        names = [self.store.value(self._in_full(n)).name for n in outputs]
        spec = self.store.builder.build(*names, shares=shares, unrounded=self.store.unrounded())
        self._check_shapes(spec)
        return spec

    def _in_full(self, node: "Node") -> Any:
        """What ``node`` makes, broadcast if that was left to its readers, which are elsewhere."""
        made = self.results[node]
        if not isinstance(made, (Value, Const)):
            return made
        return expanded(self._site(node), made, dims(node.meta["val"]))

    def made(self) -> "dict[str, Node]":
        """Name of each value -> the node whose result it is."""
        return {r.name: node for node, r in self.results.items() if isinstance(r, Value)}

    def _needed(self, chosen: "set[Node]") -> "set[Node]":
        """The chosen nodes, and the constants and sizes that they read, directly or not."""
        needed, waiting = set(chosen), [a for n in chosen for a in n.all_input_nodes]
        while waiting:
            node = waiting.pop()
            if node not in needed:
                needed.add(node)
                if node in self.graph.constant:
                    waiting += node.all_input_nodes
        return needed


def _sized_by(node: "Node", symbols: frozenset[Any]) -> bool:
    """Whether a size of what ``node`` makes, or a number that it makes, depends on one of ``symbols``."""
    if not symbols:
        return False
    value = node.meta.get("val")
    made = value if isinstance(value, (tuple, list)) else (value,)
    sizes = [d for x in made for d in (*getattr(x, "shape", ()), x) if hasattr(d, "node")]
    return any(d.node.expr.free_symbols & symbols for d in sizes)
