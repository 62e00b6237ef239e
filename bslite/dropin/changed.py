"""Arguments that a forward writes to: the state of a recurrence, a cache of fixed length, ReLU in place.

The graph, in which nothing is written to, gives their new values. They are put into the caller's tensors when
all of it has run, so that torch can still run a call that fails.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from bslite.errors import BsliteError, UnsupportedError
from bslite.frontends.torch.graph import Graph, targets
from bslite.frontends.torch.memory import memory

Node = torch.fx.Node
Tensor = torch.Tensor
OVERLAPS = "it changes a tensor that shares memory with another among its arguments"


def changes(graph: Graph, name: str) -> bool:
    """Whether operations in place change an argument. Raises UnsupportedError if a result would lie in it, or
    if they change a tensor of the module.
    """
    places = {memory(n): n for n in graph.nodes if n.op == "placeholder" and memory(n) is not None}
    written = [memory(x) for n in graph.nodes for x in targets(n)]
    changed = {place: places[place] for place in written if place in places}
    results = torch.utils._pytree.tree_leaves(graph.nodes[-1].args[0])
    held = {memory(n) for n in results if isinstance(n, Node)}
    for place, node in changed.items():
        if node in graph.stored or place in held:
            raise UnsupportedError(f"model {name!r}: its forward changes its input {node.name!r} in place")
    return bool(changed)


def apart(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The tensors, copies where some share memory: what is written to one would show in another's trace."""
    lie = [t.untyped_storage().data_ptr() if t.layout == torch.strided else None for t in tensors]
    alone = (place is None or lie.count(place) == 1 for place in lie)
    return tuple(t if own else t.clone() for t, own in zip(tensors, alone, strict=True))


def places(graph: Graph, name: str) -> tuple[int, ...]:
    """The arguments of a graph without operations in place whose new values it gives, before its results.

    Raises UnsupportedError if it gives new values of the module's tensors.
    """
    given = [n.name for n in graph.nodes if n.op == "placeholder" and n not in graph.stored]
    found = []
    for spec in graph.program.graph_signature.output_specs:
        if spec.kind.name == "USER_INPUT_MUTATION":
            found.append(given.index(spec.target))
        elif spec.kind.name != "USER_OUTPUT":
            raise UnsupportedError(f"model {name!r}: its forward changes {spec.target!r} in place")
    return tuple(found)


def writing(
    graph: Callable[[Sequence[Tensor]], Sequence[Any]], places: Sequence[int]
) -> Callable[[Sequence[Tensor]], Sequence[Any]]:
    """``graph``, a function of tensors that gives first the new values of those in ``places``, which it then
    puts there. Raises BsliteError, before it runs, if one of these shares memory with another tensor.
    """

    def run(given: Sequence[Tensor]) -> Sequence[Any]:
        lie = [t.untyped_storage().data_ptr() for t in given]
        written = {lie[i] for i in places}
        if sum(place in written for place in lie) > len(written) and _overlap(given, places):
            raise BsliteError(OVERLAPS)
        made = graph(given)
        values = made[: len(places)]
        held = (v.untyped_storage().data_ptr() in written for v in values)
        values = [v.clone() if own else v for v, own in zip(values, held, strict=True)]
        for i, value in zip(places, values, strict=True):
            given[i].copy_(value)
        return made[len(places) :]

    return run


def _overlap(given: Sequence[Tensor], places: Sequence[int]) -> bool:
    """Whether a tensor in ``places`` lies, from its first to its last element, where another does."""
    spans = []
    for tensor in given:
        reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        first = tensor.data_ptr()
        spans.append(range(first, first + reach * tensor.element_size() * bool(tensor.numel())))
    return any(
        max(spans[i].start, other.start) < min(spans[i].stop, other.stop)
        for i in places
        for j, other in enumerate(spans)
        if i != j
    )


def any_in_memory_of(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether a tensor is in the memory of another."""
    lie = {t.untyped_storage().data_ptr() for t in others}
    return any(t.layout == torch.strided and t.untyped_storage().data_ptr() in lie for t in some)
