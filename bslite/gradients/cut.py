"""The cheapest cut of a graph in two (Dinic 1970): which values lie on the border."""

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
ANY = 1 << 62  # a border that no cut crosses


class Network:
    """Vertices by number, and arcs with capacities; arc ``i ^ 1`` is the reverse of arc ``i``."""

    def __init__(self) -> None:
        self._heads: list[int] = []
        self._rest: list[int] = []
        self._arcs: list[list[int]] = []

    def vertex(self) -> int:
        """A new vertex."""
        self._arcs.append([])
        return len(self._arcs) - 1

    def arc(self, tail: int, head: int, capacity: int) -> None:
        """An arc from ``tail`` to ``head``."""
        for start, end, rest in ((tail, head, capacity), (head, tail, 0)):
            self._arcs[start].append(len(self._heads))
            self._heads.append(end)
            self._rest.append(rest)

    def behind(self, source: int, sink: int) -> set[int]:
        """The vertices on the sink's side of the cheapest cut, of several the one nearest to the sink."""
        while levels := self._levels(source, sink):
            next_arc = [0] * len(self._arcs)
            while self._augment(source, sink, levels, next_arc):
                pass
        found, waiting = {sink}, deque([sink])
        while waiting:
            for arc in self._arcs[waiting.popleft()]:
                tail = self._heads[arc]
                if self._rest[arc ^ 1] and tail not in found:
                    found.add(tail)
                    waiting.append(tail)
        return found

    def _levels(self, source: int, sink: int) -> list[int]:
        """The distance of every vertex from the source; empty if the sink is not reached."""
        levels, waiting = [-1] * len(self._arcs), deque([source])
        levels[source] = 0
        while waiting:
            tail = waiting.popleft()
            for arc in self._arcs[tail]:
                head = self._heads[arc]
                if self._rest[arc] and levels[head] < 0:
                    levels[head] = levels[tail] + 1
                    waiting.append(head)
        return levels if levels[sink] >= 0 else []

    def _augment(self, source: int, sink: int, levels: list[int], next_arc: list[int]) -> bool:
        """Push what fits through one more shortest path; False if there is none."""
        path: list[int] = []
        at = source
        while at != sink:
            arcs = self._arcs[at]
            while next_arc[at] < len(arcs):
                arc = arcs[next_arc[at]]
                if self._rest[arc] and levels[self._heads[arc]] == levels[at] + 1:
                    break
                next_arc[at] += 1
            if next_arc[at] == len(arcs):
                if not path:
                    return False
                at = self._heads[path.pop() ^ 1]
                next_arc[at] += 1
                continue
            path.append(arcs[next_arc[at]])
            at = self._heads[path[-1]]
        least = min(self._rest[arc] for arc in path)
        for arc in path:
            self._rest[arc] -= least
            self._rest[arc ^ 1] += least
        return True


def cheapest(
    prices: dict[T, int],
    above: dict[T, Iterable[T]],
    fixed: Iterable[T],
    needed: Iterable[T],
    again: Mapping[T, int] = MappingProxyType({}),
) -> set[T]:
    """The values to keep, so that all ``needed`` ones can be made of them again, at the least sum of prices.

    ``above``: what a value is made of; ``fixed``: values that cannot be made again, only kept; ``again``:
    what making a value again costs, nothing if it is not there.
    """
    network = Network()
    source, sink = network.vertex(), network.vertex()
    ends = {value: (network.vertex(), network.vertex()) for value in prices}
    for value, price in prices.items():
        network.arc(*ends[value], price)
    for value in fixed:
        network.arc(source, ends[value][0], ANY)
    for value, cost in again.items():
        network.arc(source, ends[value][0], cost)
    for value, sources in above.items():
        for name in sources:
            network.arc(ends[name][1], ends[value][0], ANY)
    for value in needed:
        network.arc(ends[value][1], sink, ANY)
    behind = network.behind(source, sink)
    return {value for value, (first, last) in ends.items() if last in behind and first not in behind}
