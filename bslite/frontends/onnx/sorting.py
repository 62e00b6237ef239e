"""Nodes in the order of their values. ONNX demands it; some converters append what they add in front."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def subgraphs(node: Any) -> Iterator[Any]:
    """The graphs inside a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def sorted_nodes(model: Any) -> Any:
    """The model if in each of its graphs every node stands behind those that make what it reads; else a copy
    of which that is true, its nodes moved no more than needed. Graphs that no order sorts stay as they are.
    """
    if all(_order(graph) is None for graph in _graphs(model.graph)):
        return model
    made = type(model)()
    made.CopyFrom(model)
    for graph in _graphs(made.graph):
        order = _order(graph)
        if order is not None:
            nodes = [type(node).FromString(node.SerializeToString()) for node in graph.node]
            del graph.node[:]
            graph.node.extend(nodes[i] for i in order)
    return made


def _graphs(graph: Any) -> Iterable[Any]:
    """A graph after those inside its nodes."""
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _graphs(inner)
    yield graph


def _order(graph: Any) -> Sequence[int] | None:
    """The nodes by number in an order of their values; None if they are in order, or have none."""
    makers = {out: i for i, node in enumerate(graph.node) for out in node.output if out}
    needs = [{makers[name] for name in _read(node) if name in makers} for node in graph.node]
    if all(max(before, default=-1) < i for i, before in enumerate(needs)):
        return None
    readers: list[list[int]] = [[] for _ in needs]
    for i, before in enumerate(needs):
        for maker in before:
            readers[maker].append(i)
    waits = [len(before) for before in needs]
    ready, order = [i for i, count in enumerate(waits) if not count], list[int]()
    while ready:
        order.append(heapq.heappop(ready))
        for reader in readers[order[-1]]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, reader)
    return order if len(order) == len(needs) else None


def _read(node: Any) -> set[str]:
    """What a node reads, and the graphs inside it read and do not make."""
    names = set(node.input)
    for graph in subgraphs(node):
        own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
        inside = {o.name for o in graph.output}
        for inner in graph.node:
            inside |= _read(inner)
            own.update(inner.output)
        names |= inside - own
    return names
