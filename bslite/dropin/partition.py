"""Which nodes of a graph run in bslite: as few parts as the order of computation allows."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from bslite.dropin.costs import does_work, flops, sizes, total
from bslite.dropin.stages import stages
from bslite.frontends.torch.graph import Graph, draws, has_tensors, is_getitem
from bslite.frontends.torch.names import call_of
from bslite.frontends.torch.parts import Survey
from bslite.frontends.torch.values import DTYPES, is_complex, kept_as

Node = torch.fx.Node


@dataclass(eq=False)
class Part:
    """Nodes that become one model, in order; the values they read; those of their values that others read.

    ``seconds``: measured times of one run, bslite's and torch's.
    """

    nodes: list[Node]
    inputs: list[Node]
    outputs: list[Node]
    seconds: tuple[float, float] | None = None
    in_bslite: bool = True

    @cached_property
    def flops(self) -> int:
        """Of all nodes, at a batch of `costs.BATCH`."""
        return total(self.nodes)


def partition(survey: Survey, most: int | None = None) -> list[Part]:
    """Disjoint sets of buildable nodes, merged wherever that makes no cycle.

    ``most``: bytes of parameters beyond which a set is cut into `stages`.
    """
    graph = survey.graph
    sizes_from_inputs(graph)
    allowed = set(survey.buildable)
    while True:
        groups = _propose(graph, allowed)
        cut = _cut_modules(graph, groups)
        if not cut:
            break
        allowed -= cut
    order = {node: i for i, node in enumerate(graph.nodes)}
    whole = len(groups) == 1 and not survey.refused
    if most is not None:
        pieces = (stages(graph, sorted(g, key=order.__getitem__), most) for g in groups)
        groups = [set(piece) for own in pieces for piece in own]
    parts = []
    for group in groups:
        if _worth_a_call(group) or whole:
            nodes = sorted(group, key=order.__getitem__)
            outputs = [n for n in nodes if any(_reads(graph, groups, group, u) for u in n.users)]
            parts.append(Part(nodes, _read(graph, group, nodes), outputs))
    return sorted(parts, key=lambda part: order[part.nodes[0]])


def _reads(graph: Graph, groups: list[set[Node]], group: set[Node], user: Node) -> bool:
    """Whether ``user`` reads a value of ``group`` from outside.

    One that makes no elements does if torch joins them.
    """
    if user in graph.hollow:
        return any(u not in graph.hollow and not any(u in g for g in groups) for u in _beyond(graph, user))
    return user in graph.live and user not in group


def _beyond(graph: Graph, node: Node) -> set[Node]:
    """What reads ``node``, directly or by way of others without elements."""
    return {v for u in node.users for v in ({u} | _beyond(graph, u) if u in graph.hollow else {u})}


def _worth_a_call(group: set[Node]) -> bool:
    """Whether a group does more than moves and one pass over elements, which torch does as fast."""
    working = [n for n in group if does_work(n)]
    return len(working) > 1 or any(flops(n) > math.prod(sizes(n)) for n in working)


def sizes_from_inputs(graph: Graph) -> None:
    """Ask inputs for sizes wherever they have the same as a value: asking the value would cut the graph."""
    known: dict[Any, tuple[Node, int]] = {}
    for node in graph.nodes:
        if node.op == "placeholder" and has_tensors(node):
            for axis, size in enumerate(node.meta["val"].shape):
                if not isinstance(size, int):
                    known.setdefault(size.node.expr, (node, axis))
        elif node.target is torch.ops.aten.sym_size.int:
            source = known.get(getattr(getattr(node.meta["val"], "node", None), "expr", None))
            if source is not None:
                node.args = source


def _sizes_of_values(graph: Graph) -> bool:
    """Whether the graph asks an intermediate value for its size."""
    return any(
        node in graph.live
        and not has_tensors(node)
        and any(a.op != "placeholder" for a in node.all_input_nodes if has_tensors(a))
        for node in graph.nodes
        if node.op == "call_function"
    )


def _propose(graph: Graph, allowed: set[Node]) -> list[set[Node]]:
    """As few sets of ``allowed`` nodes as have no cycle among them; the item of a tuple belongs to the set
    that makes the tuple.

    Sets follow each other. A node is in the last set from which no path through other operations leads to a
    set that reads it; so there are as many sets as the path has that enters sets most often.
    """
    if set(graph.operations()) <= allowed and not _sizes_of_values(graph):
        return [allowed] if allowed else []
    after: dict[Node, int] = {}  # node -> how many sets come after its own, or after it
    groups: dict[int, set[Node]] = {}
    drawing: Node | None = None  # the operation that draws numbers next, which may not do so before another
    for node in reversed(graph.nodes):
        outside = node not in allowed
        after[node] = max((after[u] + (outside and u in allowed) for u in node.users), default=0)
        if outside and draws(node):
            after[node] = max(after[node], after[drawing] if drawing else 0)
            drawing = node
        if not outside:
            groups.setdefault(after[node], set()).add(node)
    for node in graph.nodes:
        if is_getitem(node) and node in allowed:
            groups[after[node]].discard(node)
            source = node.args[0]
            assert isinstance(source, Node)
            if source in allowed:
                after[node] = after[source]
                groups[after[node]].add(node)
    return [group for group in groups.values() if group]


def _cut_modules(graph: Graph, groups: list[set[Node]]) -> set[Node]:
    """The nodes of modules that become one op, and of those that hand each other complex numbers, where no
    group has all of them.
    """
    modules: dict[str, set[Node]] = {}
    for node in graph.whole:
        modules.setdefault(call_of(node).key, set()).add(node)
    cut: set[Node] = set()
    for nodes in (*modules.values(), *_complex(graph)):
        held = [group & nodes for group in groups if group & nodes]
        if held and held != [nodes]:
            cut |= nodes
    return cut


def _complex(graph: Graph) -> list[set[Node]]:
    """The nodes that make complex numbers with those that read them, as many as hang together."""
    found: list[set[Node]] = []
    for node in graph.operations():
        if is_complex(node.meta.get("val")):
            own = {node, *(u for u in node.users if u in graph.live)}
            for other in [g for g in found if g & own]:
                found.remove(other)
                own |= other
            found.append(own)
    return found


def _read(graph: Graph, group: set[Node], nodes: list[Node]) -> list[Node]:
    """The tensors that a group takes from outside, in the order in which they are read. No constants.

    The last ones are inputs of the graph from which the group takes no more than a size.
    """
    read = dict.fromkeys(a for n in nodes for a in n.all_input_nodes)
    taken = [a for a in read if a not in group and a not in graph.constant and has_tensors(a)]
    missing = {s for n in nodes for s in _sizes_from_elsewhere(n)} - {s for a in taken for s in _axes(a)}
    for node in graph.nodes:
        if node.op != "placeholder" or node in graph.stored or missing.isdisjoint(_axes(node)):
            continue
        if kept_as(node.meta["val"]) in DTYPES:
            taken.append(node)
            missing.difference_update(_axes(node))
    return taken


def _sizes_from_elsewhere(node: Node) -> set[Any]:
    """The symbols of sizes among the operands of ``node`` that no tensor among them has."""
    given = [a.meta.get("val") for a in node.all_input_nodes]
    named = {s for v in given if isinstance(v, torch.SymInt) for s in v.node.expr.free_symbols}
    return named - {
        s for a in node.all_input_nodes if has_tensors(a) for d in _axes(a) for s in d.free_symbols
    }


def _axes(node: Node) -> list[Any]:
    """The free sizes of the tensor that ``node`` makes, as expressions; none if it makes several."""
    shape = getattr(node.meta.get("val"), "shape", ())
    return [d.node.expr for d in shape if isinstance(d, torch.SymInt)]
