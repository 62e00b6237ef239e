"""Parts of a graph in training, cut into stages whose gradients are ready one after the other.

`DistributedDataParallel` sums gradients over all processes bucket by bucket, as soon as those of a bucket are
there, while the backward pass goes on. A part makes all of its gradients at once, so it must not be much more
than a bucket.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import torch

from bslite.dropin.costs import sizes
from bslite.frontends.torch.graph import Graph, is_getitem
from bslite.frontends.torch.names import call_of
from bslite.frontends.torch.values import is_complex

Node = torch.fx.Node
BUCKET_MB = 25.0  # DistributedDataParallel's own choice


def most_bytes(bucket_mb: float | None) -> int | None:
    """The bytes of parameters of one stage; None: as many as there are.

    Where the user asks for nothing, stages are of use only where processes train together.
    """
    together = torch.distributed.is_available() and torch.distributed.is_initialized()
    if bucket_mb is None and not together:
        return None
    return int((BUCKET_MB if bucket_mb is None else bucket_mb) * 2**20)


def stages(graph: Graph, nodes: Sequence[Node], most: int) -> list[list[Node]]:
    """``nodes``, in order, as pieces that read ``most`` bytes of parameters each, or those of a larger layer.

    From the last node on, since gradients are made in this order. Between half of ``most`` and all of it, the
    cut is where the fewest bytes of values cross.
    """
    crossing = _crossing(graph, nodes)
    cuts = [len(nodes)]
    while cuts[-1]:
        cuts.append(_cut(graph, nodes[: cuts[-1]], crossing, most))
    cuts.reverse()
    return [list(nodes[a:b]) for a, b in pairwise(cuts)]


def _cut(graph: Graph, nodes: Sequence[Node], crossing: Mapping[int, int], most: int) -> int:
    """Where the last stage of ``nodes`` begins."""
    read: set[Node] = set()
    best = total = 0
    for place in range(len(nodes) - 1, -1, -1):
        new = _parameters(graph, nodes[place]) - read
        read |= new
        total += sum(map(_bytes, new))
        if total > most and best:
            return best
        if 2 * total >= most and place in crossing and (not best or crossing[place] < crossing[best]):
            best = place
            if total > most:
                return best
    return 0


def _crossing(graph: Graph, nodes: Sequence[Node]) -> dict[int, int]:
    """For each place at which ``nodes`` can be cut, the bytes of values that cross the cut.

    Not within a layer that is one op, nor between a tuple and its items, nor where complex numbers are read.
    """
    order = {node: i for i, node in enumerate(nodes)}
    bytes_, closed = [0] * (len(nodes) + 1), [0] * (len(nodes) + 1)  # what begins or ends to cross at a place

    def add(to: list[int], first: int, last: int, amount: int) -> None:
        to[first + 1] += amount
        to[last + 1] -= amount

    layers: dict[str, list[int]] = {}
    for i, node in enumerate(nodes):
        readers = [order[u] for u in node.users if u in order]
        inner = is_complex(node.meta.get("val"))  # a part takes and gives real numbers
        items = [order[u] for u in node.users if u in order and (inner or is_getitem(u))]
        if node in graph.whole:
            layers.setdefault(call_of(node).key, []).append(i)
        if items:
            add(closed, i, max(items), 1)
        elif readers and node not in graph.constant:
            add(bytes_, i, max(readers), _bytes(node))
    for places in layers.values():
        add(closed, min(places), max(places), 1)
    open_ = accumulate(closed)
    return {
        place: crossing
        for place, (crossing, shut) in enumerate(zip(accumulate(bytes_), open_, strict=True))
        if 0 < place < len(nodes) and not shut
    }


def _parameters(graph: Graph, node: Node) -> set[Node]:
    """The stored tensors that a node reads, directly or by way of what is computed from them alone."""
    found: set[Node] = set()
    for read in node.all_input_nodes:
        if read in graph.stored:
            found.add(read)
        elif read in graph.constant:
            found |= _parameters(graph, read)
    return found


def _bytes(node: Node) -> int:
    return 4 * math.prod(sizes(node))
