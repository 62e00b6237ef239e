"""Elements that a condition selects, put where the same condition holds: ``x[m] = f(y[m])``, however many
there are, is a choice between f(y) and x.

f is what has a result for each element by itself. Where gradients are wanted, it is a sum or a difference:
others may make infinities of what is not chosen, and zero times one of those is no zero. So it is of whole
numbers, which others may divide by a zero that is not chosen.
"""

from contextlib import suppress
from typing import Any

from bslite.frontends.common.lazy import load_torch
from bslite.frontends.torch.builders import operation
from bslite.frontends.torch.graph import draws, targets, writes
from bslite.frontends.torch.memory import memory
from bslite.frontends.torch.put import put
from bslite.frontends.torch.values import dims

SUMS = ("add", "sub", "neg")
COPIES = ("alias", "clone", "to", "_to_copy")
CHECKS = ("_assert_scalar", "sym_constrain_range_for_size", "sym_constrain_range")


def choose(graph: Any, gradients: bool) -> None:
    """Write a choice in the place of each assignment of this kind."""
    nodes = list(graph.nodes)
    puts = [n for n in nodes if _is_call(n) and operation(n) == "index_put" and len(n.args) == 3]
    if not puts:
        return
    order = {node: i for i, node in enumerate(nodes)}
    written = [(i, place) for node, i in order.items() for place in map(memory, targets(node))]
    selections: dict[Any, None] = {}
    for node in puts:
        choice = _Choice(node, order, gradients)
        with suppress(_Other):
            choice.read()
            choice.check_kept(written)
            choice.write(graph)
            selections |= dict.fromkeys(choice.selections)
    for selection in selections:
        _drop(graph, selection)


class _Other(Exception):
    """It is no choice."""


class _Choice:
    """The assignment ``at`` as a choice. ``whole``: what is put, of all elements: a node, or an operation and
    its arguments. ``selections``: the nodes that select elements for it.
    """

    def __init__(self, at: Any, order: dict[Any, int], gradients: bool) -> None:
        self.at, self._order, self._gradients = at, order, gradients
        self.whole: Any = None
        self.selections: list[Any] = []
        self._uses: list[
            tuple[Any, int]
        ] = []  # what is to be the same from one place in the graph on to ``at``

    def read(self) -> None:
        """Find ``whole``. Raises _Other where there is none."""
        target, indices, values = self.at.args
        conditions = [i for i in indices if i is not None]
        if len(conditions) != 1 or conditions[0].meta["val"].dtype != load_torch().bool:
            raise _Other
        self.whole = self._whole(values, self.at)
        if not self.selections or values.meta["val"].dtype != target.meta["val"].dtype:
            raise _Other

    def check_kept(self, written: list[tuple[int, int | None]]) -> None:
        """Raise _Other if memory that is read is written to before the choice. ``written``: where nodes write
        to, by their places in the graph.
        """
        end = self._order[self.at]
        for node, start in self._uses:
            place = memory(node)
            if place is None or any(start < i < end and place == other for i, other in written):
                raise _Other

    def write(self, graph: Any) -> None:
        """Put the choice in the place of the assignment."""
        aten, at = load_torch().ops.aten, self.at
        target, indices, _ = at.args
        (condition,) = (i for i in indices if i is not None)

        def built(whole: Any) -> Any:
            if not isinstance(whole, tuple):
                return whole
            function, args, named = whole
            return put(graph, at, function, *map(built, args), **named)

        with graph.inserting_before(at):
            for _ in range(_behind(at)):
                condition = put(graph, at, aten.unsqueeze.default, condition, -1)
            chosen = put(graph, at, aten.where.self, condition, built(self.whole), target)
            if writes(at):
                chosen = put(graph, at, aten.copy_.default, target, chosen)
        at.replace_all_uses_with(chosen)
        graph.erase_node(at)

    def _use(self, node: Any, since: Any) -> None:
        """``node`` is read by ``since`` first, or is made there."""
        self._uses.append((node, self._order[since]))

    def _whole(self, value: Any, reader: Any) -> Any:
        """What ``value``, a function of selected elements, is of all elements."""
        if not _is_call(value):
            return self._same_for_all(value, reader)
        name, at = operation(value), self.at
        if name == "index":
            source, indices = value.args
            self._same(indices, at.args[1], value, at)
            if len(dims(source.meta["val"])) != len(dims(at.args[0].meta["val"])):
                raise _Other
            self._use(source, value)
            self._use(value, value)
            self.selections.append(value)
            return source
        if name in ("view", "reshape") and _drops_ones(value):  # as an assignment does
            self._use(value, value)
            return self._whole(value.args[0], value)
        tags = getattr(value.target, "tags", ())
        if load_torch().Tag.pointwise not in tags and name not in COPIES:
            return self._same_for_all(value, reader)
        exact = (
            self._gradients or not value.meta["val"].is_floating_point()
        )  # whole numbers may not be divided by 0
        if writes(value) or draws(value) or (exact and name not in (*SUMS, *COPIES)):
            raise _Other
        self._use(value, value)
        return value.target, [self._whole(x, value) for x in value.args], dict(value.kwargs)

    def _same_for_all(self, value: Any, reader: Any) -> Any:
        """``value``, if it is a number, or has no axis of selected elements."""
        shape = getattr(value.meta.get("val"), "shape", None) if hasattr(value, "meta") else None
        if shape is not None:
            if len(shape) > _behind(self.at):
                raise _Other
            self._use(value, reader)
        return value

    def _same(self, a: Any, b: Any, reads_a: Any, reads_b: Any) -> None:
        """Raise _Other unless ``a`` is ``b``, or both are computed alike; of what reads them."""
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
            for x, y in zip(a, b, strict=True):
                self._same(x, y, reads_a, reads_b)
        elif not hasattr(a, "meta") or not hasattr(b, "meta"):
            if type(a) is not type(b) or a != b:
                raise _Other
        elif a is b:
            if isinstance(a.meta.get("val"), load_torch().Tensor):
                self._use(a, min(reads_a, reads_b, key=self._order.__getitem__))
        else:
            if not (_is_call(a) and _is_call(b)) or a.target != b.target or a.kwargs != b.kwargs:
                raise _Other
            if writes(a) or draws(a):
                raise _Other
            self._use(a, a)
            self._use(b, b)
            self._same(a.args, b.args, a, b)


def _drop(graph: Any, selection: Any) -> None:
    """Remove a selection that nothing reads any more but checks of how many elements it has."""
    reached = {selection}
    for node in graph.nodes:
        if not reached.isdisjoint(node.all_input_nodes):
            reached.add(node)
    if all(n.users or operation(n) in CHECKS or not _acts(n) for n in reached):
        for node in reversed(list(graph.nodes)):
            if node in reached and not node.users:
                graph.erase_node(node)


def _is_call(node: Any) -> bool:
    return getattr(node, "op", "") == "call_function"


def _behind(at: Any) -> int:
    """How many axes of what is written to lie behind those of the condition."""
    target, indices, _ = at.args
    (condition,) = (i for i in indices if i is not None)
    return len(dims(target.meta["val"])) - (len(indices) - 1) - len(dims(condition.meta["val"]))


def _drops_ones(node: Any) -> bool:
    """Whether a reshape takes away axes of one in front, and nothing else."""
    shape, made = dims(node.args[0].meta["val"]), dims(node.meta["val"])
    more = len(shape) - len(made)
    return more >= 0 and shape == (*(1,) * more, *made)


def _acts(node: Any) -> bool:
    """Whether a node that nobody reads does something."""
    return node.op == "output" or node.is_impure()
