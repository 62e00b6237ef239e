"""A graph cut into pieces: what the engine computes at once, and nodes that run by themselves.

A node's level is the number of cuts on the longest path to it. All nodes of one level that the engine
computes are one piece, so that the graph is cut as rarely as the order allows.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from bslite.onnx.graph import Graph

ENGINE, ALONE, EVALUATED = "engine", "alone", "evaluated"
PRODUCTS = ("Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN")
SIZES = ("Shape", "Size", "If", "Loop", "Scan", "SequenceMap")


@dataclass(frozen=True)
class Piece:
    """Nodes with the values they read and make. ``how``: `ENGINE` for several, else one node alone.

    ``places``: of its nodes in the graph, behind those of constants that it holds. ``forced``: inputs whose
    values may be built in whatever they are.
    """

    places: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    how: str
    forced: frozenset[str] = frozenset()
    #: What runs it, by the dtypes of its inputs: found here without a look at the rest.
    ready: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def refused(self) -> bool:
        """Whether it is not the engine's."""
        return self.how != ENGINE


def cut(graph: Graph, alone: Mapping[int, str], late: Set[int], first: Set[int] = frozenset()) -> list[Piece]:
    """The pieces in an order in which they can run.

    ``alone``: place -> how it runs, of nodes that are a piece each. ``late``: nodes that need the value of
    something computed: they come in a later piece than what they read. ``first``: nodes that no others come
    together with, see `steady`.
    """
    level: dict[int, int] = {}
    for i in range(len(graph.nodes)):
        if i in graph.constant and i not in alone:
            continue
        sources = [graph.made[r] for r in graph.reads[i] if r in graph.made and graph.made[r] in level]
        steps = [
            level[j] + (i not in alone and (j in alone or i in late or (j in first and i not in first)))
            for j in sources
            if j < i
        ]
        level[i] = max([*steps, int(bool(first) and i not in first and i not in alone)])
    live = _live(graph)
    made = []
    for depth in range(max(level.values(), default=0) + 1):
        here = [i for i in level if level[i] == depth and i in live]
        together = [i for i in here if i not in alone]
        if together:
            made.append(_piece(graph, together, ENGINE, late))
        made += [_piece(graph, [i], alone[i], late) for i in here if i in alone]
    return made


def steady(graph: Graph) -> frozenset[int]:
    """The products of a body that are the same in every step, with what they are made of.

    They read values around the body and constants alone. What is made of sizes is left where it is: it is
    known there without being computed.
    """
    taken, made = set(graph.takes), dict[int, set[int]]()
    found: set[int] = set()
    for i, node in enumerate(graph.nodes):
        if i in graph.constant:
            continue
        sources = {graph.made[r] for r in graph.reads[i] if r in graph.made} - graph.constant
        if graph.reads[i] & taken or not sources <= made.keys() or node.op_type in SIZES:
            continue
        made[i] = {i}.union(*(made[j] for j in sources))
        if node.op_type in PRODUCTS and not node.domain:
            found |= made[i]
    return frozenset(found)


def _live(graph: Graph) -> set[int]:
    """The nodes that an output depends on."""
    wanted, live = set(graph.outputs), set[int]()
    for i in range(len(graph.nodes) - 1, -1, -1):
        if wanted.intersection(graph.nodes[i].output):
            live.add(i)
            wanted |= graph.reads[i]
    return live


def _piece(graph: Graph, places: Sequence[int], how: str, late: Set[int]) -> Piece:
    own = set(places)
    made = [o for i in places for o in graph.nodes[i].output if o]
    read = dict.fromkeys(r for i in places for r in sorted(graph.reads[i]))
    inputs = [r for r in read if r not in made and not graph.is_constant(r)]
    elsewhere = set(graph.outputs)
    for i in range(len(graph.nodes)):
        if i not in own:
            elsewhere |= graph.reads[i]
    forced = {r for i in places if i in late for r in graph.reads[i]}
    outputs = [o for o in made if o in elsewhere]
    return Piece(tuple(places), tuple(inputs), tuple(outputs), how, frozenset(forced & set(inputs)))
