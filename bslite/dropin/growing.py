"""Sizes that grow from call to call: of the keys and values that a language model keeps of past tokens.

A trace leaves them free. What has such a size, attention above all, runs in torch; bslite runs the rest,
whose sizes stay the same, so that no call plans anew. `Survey` makes that cut.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch

from bslite.dropin.signature import Key
from bslite.dropin.structure import GROWS
from bslite.errors import UnsupportedError
from bslite.frontends.torch.graph import Graph
from bslite.frontends.torch.values import substituted

Tensor = torch.Tensor
ONE = "its cache holds one token: a trace would hold for that length alone"

OTHERS = "an object among its arguments holds other numbers at every call, and a trace holds for one of them"


def axes(tensors: Sequence[Tensor], inside: Sequence[bool], counted: Iterable[int] = ()) -> list[int | None]:
    """The axis of each tensor that is expected to grow from call to call; none if there is no cache.

    A cache is an object with tensors of four axes, the last but one of which counts what it holds, or pairs
    of such tensors (`kept`). A mask over it counts in its last axis that and what this call adds. ``inside``:
    whether a tensor is a cache's. ``counted``: how many tokens it has met, where it forgets some.
    """
    found: list[int | None] = [None] * len(tensors)
    held = [i for i, t in enumerate(tensors) if inside[i] and t.ndim == 4]
    lengths = {tensors[i].shape[GROWS] for i in held}
    added = {t.shape[1] for t, kept in zip(tensors, inside, strict=True) if not kept and t.ndim in (2, 3)}
    totals = {n + m for n in (*lengths, *counted) for m in added}
    for i, t in enumerate(tensors):
        if i in held:
            found[i] = GROWS
        elif not inside[i] and t.ndim > 1 and t.shape[-1] in totals:
            found[i] = t.ndim - 1
    return found


def kept(value: Any) -> set[int]:
    """The ids of the tensors that are keys and values without an object: pairs, one for each layer, all of
    one length, in a tuple or list.
    """
    if isinstance(value, dict):
        return set().union(*map(kept, value.values()))
    if not isinstance(value, (list, tuple)):
        return set()
    if value and all(map(_is_pair, value)) and len({pair[0].shape[GROWS] for pair in value}) == 1:
        return {id(tensor) for pair in value for tensor in pair}
    return set().union(*map(kept, value))


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and all(isinstance(x, Tensor) and x.ndim == 4 for x in value)
        and value[0].shape[: GROWS + 1] == value[1].shape[: GROWS + 1]
    )


def too_short(tensors: Sequence[Tensor], grows: Sequence[int | None]) -> bool:
    """Whether a size that grows is one, which torch.export takes for fixed."""
    return any(axis is not None and t.shape[axis] == 1 for t, axis in zip(tensors, grows, strict=False))


class Grown:
    """A call whose trace leaves sizes free, with tensors of ``key``: the next ones, which differ from it in
    these alone, are served alike.
    """

    def __init__(self, key: Key, graph: Graph, growing: Collection[Any]) -> None:
        (self._arguments, said), self._values = key
        self._said = [
            (shape, _free(node.meta["val"].shape, growing), rest)
            for (shape, _, *rest), node in zip(said, _inputs(graph), strict=True)
        ]

    def serves(self, key: Key) -> bool:
        """Whether a call of ``key`` is such a one; whether its sizes suit the trace is to be asked yet."""
        (arguments, said), values = key
        return (arguments, values, len(said)) == (self._arguments, self._values, len(self._said)) and all(
            rest == known and _alike(shape, first, free)
            for (shape, _, *rest), (first, free, known) in zip(said, self._said, strict=True)
        )


def _free(traced: Sequence[Any], growing: Collection[Any]) -> list[int]:
    """The axes whose sizes say nothing but how much has grown."""
    return [a for a, n in enumerate(traced) if not isinstance(n, int) and n.node.expr.free_symbols <= growing]


def _alike(shape: Sequence[int], first: Sequence[int], free: Collection[int]) -> bool:
    """Whether sizes are the same but for ``free`` axes, which are longer than one: that a trace takes for
    fixed.
    """
    return len(shape) == len(first) and all(
        n > 1 if a in free else n == m for a, (n, m) in enumerate(zip(shape, first, strict=True))
    )


def left_free(axes: Collection[int]) -> Any:
    """What ``dynamic_shapes`` says of a tensor whose ``axes`` are to stay free."""
    return dict.fromkeys(axes, torch.export.Dim.AUTO) or None


def symbols(graph: Graph, grows: Sequence[int | None], counters: int) -> frozenset[Any]:
    """The symbols of the sizes that grow, among them those of the last ``counters`` inputs. Raises
    UnsupportedError if the trace fixed one of them.
    """
    found: set[Any] = set()
    counters = len(grows) - counters
    for i, (node, axis) in enumerate(zip(_inputs(graph), grows, strict=False)):
        if axis is not None:
            size = node.meta["val"].shape[axis]
            if isinstance(size, int) or (i >= counters and not size.node.expr.free_symbols):
                raise UnsupportedError(f"its cache cannot grow: {node.name!r} has a length fixed at {size}")
            found |= size.node.expr.free_symbols
    return frozenset(found)


def refusal(graph: Graph, tensors: Sequence[Tensor]) -> str:
    """Why a graph with free sizes does not hold for ``tensors``; empty if it does."""
    sizes: dict[Any, int] = {}
    pairs: list[tuple[Any, int]] = []
    for node, tensor in zip(_inputs(graph), tensors, strict=True):
        for traced, size in zip(node.meta["val"].shape, tensor.shape, strict=True):
            if isinstance(traced, int):
                pairs.append((traced, size))
            elif traced.node.expr.is_Symbol:
                pairs.append((sizes.setdefault(traced.node.expr, size), size))
            else:
                pairs.append((traced.node.expr, size))
    for traced, size in pairs:
        if (traced if isinstance(traced, int) else substituted(traced, sizes)) != size:
            return f"a size is {size}, the trace holds for {traced}"
    for symbol, bounds in graph.program.range_constraints.items():
        if symbol in sizes and not bounds.lower <= sizes[symbol] <= bounds.upper:
            return f"a size is {sizes[symbol]}, the trace holds from {bounds.lower} to {bounds.upper}"
    for guard in _guards(graph):
        if guard.free_symbols <= sizes.keys() and substituted(guard, sizes) == False:  # noqa: E712 (sympy's)
            return f"sizes {sizes} are not those that the trace holds for: {guard}"
    return ""


def _inputs(graph: Graph) -> list[torch.fx.Node]:
    return [n for n in graph.nodes if n.op == "placeholder" and n not in graph.stored]


def _guards(graph: Graph) -> list[Any]:
    """What the traced code asked of sizes."""
    for node in _inputs(graph):
        for size in getattr(node.meta.get("val"), "shape", ()):
            if not isinstance(size, int):
                return list(dict.fromkeys(g.expr for g in getattr(size.node.shape_env, "guards", ())))
    return []
